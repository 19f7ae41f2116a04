"""Recommendations of a trained run: the best items a user has not trained on, for some users or for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import torch
from jaxtyping import Float, Int
from pyarrow import csv, parquet
from torch import Tensor

from fedrecgel.data.history import History
from fedrecgel.errors import ConfigError, unknown
from fedrecgel.methods.base import Server
from fedrecgel.storage import write_atomically

if TYPE_CHECKING:
    from fedrecgel.runs.result import Result

WRITERS: dict[str, Any] = {".parquet": parquet.ParquetWriter, ".csv": csv.CSVWriter}
ROWS_AT_ONCE = 200_000
"""Rows written together: many small groups make a large and slow Parquet file."""


class Best(NamedTuple):
    """The best items of some users, one row per recommendation, best first."""

    users: Int[Tensor, " r"]
    ranks: Int[Tensor, " r"]
    items: Int[Tensor, " r"]
    scores: Float[Tensor, " r"]


def user_number(result: Result, user: int | str) -> int:
    """The number of a user by its id; a number typed on a command line is text.

    Raises:
        ConfigError: the user is unknown.
    """
    names = [str(known) for known in result.user_ids]
    if str(user) not in names:
        raise ConfigError(unknown("user", str(user), names))
    return names.index(str(user))


def best_items(result: Result, users: range, k: int) -> Iterator[Best]:
    """The k best items of each user among those it has not trained on, a block of users at a time.

    Among equal scores the lower item number comes first. A user with fewer than k such items gets them all.

    Raises:
        ConfigError: k is not positive.
    """
    if k < 1:
        raise ConfigError(f"k should be at least 1. Found {k}.")
    method, server, n_items = result.config.method.build(), Server(result.shared), len(result.item_ids)
    everyone = method.broadcast(server, torch.arange(users.start, users.stop))
    size = max(1, result.config.local.chunk_scores // n_items)
    for first in range(users.start, users.stop, size):
        ids = torch.arange(first, min(first + size, users.stop))
        down = everyone.of(slice(first - users.start, first - users.start + len(ids)))
        private, history = result.clients.of(slice(first, first + len(ids))), History(result.train, ids)
        scores = method.score(private, down, history, torch.arange(n_items).expand(len(ids), -1)).clone()
        owner, at = result.train.flat(ids.numpy())
        scores[torch.from_numpy(owner), torch.from_numpy(result.train.items[at]).long()] = -torch.inf
        # Stable, so that equal scores come out the same however many users share a block.
        ordered = torch.sort(scores, dim=1, descending=True, stable=True)
        free = n_items - torch.from_numpy(result.train.sizes(ids.numpy()))
        row, rank = torch.nonzero(torch.arange(min(k, n_items)) < free[:, None], as_tuple=True)
        yield Best(ids[row], rank + 1, ordered.indices[row, rank], ordered.values[row, rank])


def check_table_path(path: Path) -> Path:
    """Refuse a file type that cannot be written, before anything is computed.

    Raises:
        ConfigError: the name ends otherwise, or is that of a folder.
    """
    if path.suffix not in WRITERS:
        raise ConfigError(f"-o should end with {' or '.join(WRITERS)}. Found '{path}'.")
    if path.is_dir():
        raise ConfigError(f"-o should be a file. '{path}' is a folder.")
    return path


def write_recommendations(result: Result, path: Path, k: int = 10) -> int:
    """Write the k best items of every user as a table with columns user, rank, item and score; returns its rows.

    Users are scored a block at a time and the file appears when it is complete.

    Raises:
        ConfigError: the name does not end with .parquet or .csv, or k is not positive.
        StorageError: it could not be written; a file that was there is untouched.
    """
    make = WRITERS[check_table_path(path).suffix]
    user_ids, item_ids = pa.array(result.user_ids), pa.array(result.item_ids)
    columns = {"user": user_ids.type, "rank": pa.int32(), "item": item_ids.type, "score": pa.float64()}
    schema, n_rows = pa.schema(columns), 0

    def write(temporary: Path) -> None:
        nonlocal n_rows
        with make(str(temporary), schema) as writer:
            for best in _gather(best_items(result, range(len(user_ids)), k)):
                users, ranks, items, scores = (column.numpy() for column in best)
                values = [user_ids.take(pa.array(users)), ranks, item_ids.take(pa.array(items)), scores]
                cast = [pa.array(v).cast(kind) for v, kind in zip(values, schema.types, strict=True)]
                writer.write_table(pa.Table.from_arrays(cast, schema=schema))
                n_rows += len(users)

    write_atomically(path, write)
    return n_rows


def _gather(blocks: Iterator[Best]) -> Iterator[Best]:
    """The same rows in fewer, larger blocks."""
    waiting: list[Best] = []
    for block in blocks:
        waiting.append(block)
        if sum(len(one.users) for one in waiting) >= ROWS_AT_ONCE:
            yield Best(*(torch.cat(column) for column in zip(*waiting, strict=True)))
            waiting = []
    if waiting:
        yield Best(*(torch.cat(column) for column in zip(*waiting, strict=True)))
