"""Recommendations of a trained run: the best items a user has not trained on, for some users or for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from pyarrow import csv, parquet
from torch import Tensor

from fedrecgel.data.history import History
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.errors import ConfigError, unknown
from fedrecgel.methods.base import Download, Method, Server
from fedrecgel.storage import write_atomically
from fedrecgel.tables import State

if TYPE_CHECKING:
    from fedrecgel.runs.result import Result

WRITERS: dict[str, Any] = {".parquet": parquet.ParquetWriter, ".csv": csv.CSVWriter}
ROWS_AT_ONCE = 200_000
"""Rows written together: many small groups make a large and slow Parquet file."""
SCORES_PER_PART = 100_000_000
"""Scores behind one part of the table for everybody: about a minute of work."""


class Recommendation(NamedTuple):
    """One recommended item."""

    item: int | str
    score: float


class Best(NamedTuple):
    """The best items of some users, one row per recommendation, best first."""

    users: Int[Tensor, " r"]
    ranks: Int[Tensor, " r"]
    items: Int[Tensor, " r"]
    scores: Float[Tensor, " r"]


@dataclass(frozen=True, eq=False)
class Audience:
    """Users as their devices know them, whether they trained or were folded in."""

    method: Method
    down: Download
    """What each received."""
    private: State
    history: ItemSets
    """What each is scored with."""
    known: ItemSets
    """What each has already: never recommended."""


def trained(result: Result) -> Audience:
    """All users of a run."""
    method = result.config.method.build()
    down = method.broadcast(Server(result.shared), torch.arange(len(result.user_ids)))
    return Audience(method, down, result.clients, result.train, result.train)


def user_number(result: Result, user: int | str) -> int:
    """The number of a user by its id; a number typed on a command line is text.

    Raises:
        ConfigError: the user is unknown.
    """
    names = [str(known) for known in result.user_ids]
    if str(user) not in names:
        raise ConfigError(unknown("user", str(user), names))
    return names.index(str(user))


def name_best(result: Result, audience: Audience, user: int, k: int) -> list[Recommendation]:
    """The k best items of one user by their ids.

    Raises:
        ConfigError: k is not positive.
    """
    (best,) = best_items(audience, range(user, user + 1), k, 1)
    pairs = zip(best.items.tolist(), best.scores.tolist(), strict=True)
    return [Recommendation(result.item_ids[item], score) for item, score in pairs]


def best_items(audience: Audience, users: range, k: int, at_once: int) -> Iterator[Best]:
    """The k best items of each user among those it does not have, so many users at a time.

    Among equal scores the lower item number comes first. A user with fewer than k such items gets them all.

    Raises:
        ConfigError: k is not positive.
    """
    _check_k(k)
    known, n_items = audience.known, audience.known.n_items
    for first in range(users.start, users.stop, at_once):
        ids = torch.arange(first, min(first + at_once, users.stop))
        here = slice(first, first + len(ids))
        private, history = audience.private.of(here), History(audience.history, ids)
        catalogue = torch.arange(n_items).expand(len(ids), -1)
        scores = audience.method.score(private, audience.down.of(here), history, catalogue).clone()
        owner, at = known.flat(ids.numpy())
        scores[torch.from_numpy(owner), torch.from_numpy(known.items[at]).long()] = -torch.inf
        # Stable, so that equal scores come out the same however many users share a block.
        ordered = torch.sort(scores, dim=1, descending=True, stable=True)
        free = n_items - torch.from_numpy(known.sizes(ids.numpy()))
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


class Everyone:
    """The k best items of every user, as tables of some users each with columns user, rank, item and score.

    Raises:
        ConfigError: k is not positive.
    """

    def __init__(self, result: Result, k: int) -> None:
        _check_k(k)
        self.result, self.audience, self.k = result, trained(result), k
        self._users, self._items = pa.array(result.user_ids), pa.array(result.item_ids)
        columns = {"user": self._users.type, "rank": pa.int32(), "item": self._items.type, "score": pa.float64()}
        self.schema = pa.schema(columns)

    @property
    def parts(self) -> list[range]:
        """The users of each table. Sizes alone decide the cut, and blocks of users end where they would without it."""
        n_users, n_items, block = len(self._users), len(self._items), _users_at_once(self.result)
        fit = min(SCORES_PER_PART // n_items, ROWS_AT_ONCE // min(self.k, n_items))
        size = max(1, fit // block) * block
        return [range(first, min(first + size, n_users)) for first in range(0, n_users, size)]

    def table(self, users: range, advance: Callable[[int], None] = lambda users: None) -> pa.Table:
        """What is recommended to these users; `advance` hears of how many more it is found."""
        known, size, end = self.audience.known, _users_at_once(self.result), 0
        own = known.ptr[users.start + 1 : users.stop + 1] - known.ptr[users.start : users.stop]
        n_rows = int(np.minimum(self.k, known.n_items - own).sum())
        # Written in place: small results left between the scores of blocks would keep their memory from being reused.
        columns = [np.empty(n_rows, kind) for kind in (np.int64, np.int32, np.int64, np.float64)]
        for first, best in zip(users[::size], best_items(self.audience, users, self.k, size), strict=True):
            start, end = end, end + len(best.users)
            for column, values in zip(columns, best, strict=True):
                column[start:end] = values.numpy()
            advance(min(size, users.stop - first))
        numbers, ranks, items, scores = map(pa.array, columns)
        return pa.Table.from_arrays(
            [self._users.take(numbers), ranks, self._items.take(items), scores], schema=self.schema
        )


def write_recommendations(result: Result, path: Path, k: int = 10) -> int:
    """Write the k best items of every user as a table with columns user, rank, item and score; returns its rows.

    Users are scored a block at a time and the file appears when it is complete.

    Raises:
        ConfigError: the name does not end with .parquet or .csv, or k is not positive.
        StorageError: it could not be written; a file that was there is untouched.
    """
    check_table_path(path)
    everyone = Everyone(result, k)
    return write_tables(path, everyone.schema, map(everyone.table, everyone.parts))


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write tables one below the other into a .parquet or .csv file; returns its rows.

    Raises:
        StorageError: it could not be written; a file that was there is untouched.
    """
    n_rows = 0

    def write(temporary: Path) -> None:
        nonlocal n_rows
        with WRITERS[path.suffix](str(temporary), schema) as writer:
            for table in _gather(tables):
                writer.write_table(table)
                n_rows += table.num_rows

    write_atomically(path, write)
    return n_rows


def _gather(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in fewer, larger tables."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(one.num_rows for one in waiting) >= ROWS_AT_ONCE:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _users_at_once(result: Result) -> int:
    return max(1, result.config.local.chunk_scores // len(result.item_ids))


def _check_k(k: int) -> None:
    if k < 1:
        raise ConfigError(f"k should be at least 1. Found {k}.")
