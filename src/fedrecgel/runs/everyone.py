"""Recommendations of a trained run for everybody, as a table that is computed and written some users at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Bool
from pyarrow import csv, parquet
from torch import Tensor

from fedrecgel.data.item_sets import IntArray
from fedrecgel.engine.economies import scores_at_once
from fedrecgel.engine.workers import Workers
from fedrecgel.errors import ConfigError
from fedrecgel.runs.because import reasons
from fedrecgel.runs.recommend import Best, best_items, check_k, trained
from fedrecgel.storage import write_atomically

if TYPE_CHECKING:
    from fedrecgel.runs.result import Result

WRITERS: dict[str, Any] = {".parquet": parquet.ParquetWriter, ".csv": csv.CSVWriter}
ROWS_AT_ONCE = 200_000
"""Rows written together: many small groups make a large and slow Parquet file."""
SCORES_PER_PART = 100_000_000
"""Scores behind one part of the table: about a minute of work."""
TRIED = 2
"""Blocks for each worker that tell how long all will take."""


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
    """The k best items of every user, as tables of some users each with columns user, rank, item, title and score.

    Without titles there is no such column. Reasons, a column `because`, take far longer than ranks: only if asked for.

    Raises:
        ConfigError: k is not positive.
    """

    def __init__(
        self, result: Result, k: int, allowed: Bool[Tensor, " n"] | None = None, *, because: bool = False
    ) -> None:
        check_k(k)
        self.because = because
        self.result, self.audience, self.k, self.allowed = result, trained(result), k, allowed
        self.workers = Workers(result.config.local.workers)
        self._users, self._items = pa.array(result.user_ids), pa.array(result.item_ids)
        self._titles = None if result.item_titles is None else pa.array(result.item_titles)
        titled = {} if self._titles is None else {"title": pa.string()}
        columns = {"user": self._users.type, "rank": pa.int32(), "item": self._items.type, **titled}
        reasoned = {"because": pa.list_(self._items.type)} if because else {}
        self.schema = pa.schema({**columns, "score": pa.float64(), **reasoned})

    @property
    def parts(self) -> list[range]:
        """The users of each table. Sizes alone decide the cut, and blocks of users end where they would without it."""
        n_users, n_items, block = len(self._users), len(self._items), self._at_once
        fit = min(SCORES_PER_PART // n_items, ROWS_AT_ONCE // min(self.k, n_items))
        size = max(1, fit // block) * block
        return [range(first, min(first + size, n_users)) for first in range(0, n_users, size)]

    def _best(self, users: range) -> Iterator[Best]:
        return best_items(
            self.audience,
            users,
            self.k,
            self._at_once,
            self.allowed,
            self.workers,
            compiled=self.audience.compiled,
        )

    def estimate(self, n_users: int) -> float:
        """Seconds that so many users will take, by a few of them; nothing of it is kept."""
        few = range(0, min(len(self._users), TRIED * self.workers.n * self._at_once))
        deque(self._best(few), maxlen=0)  # the first ones pay for what all others share
        started = time.perf_counter()
        deque(self._best(few), maxlen=0)
        return (time.perf_counter() - started) / len(few) * n_users

    @property
    def _at_once(self) -> int:
        """Users scored together."""
        usual, method = self.result.config.local.chunk_scores, self.audience.method
        return max(1, scores_at_once(method, usual, compiled=self.audience.compiled, whole=True) // len(self._items))

    def table(self, users: range, advance: Callable[[int], None] = lambda users: None) -> pa.Table:
        """What is recommended to these users; `advance` hears of how many more it is found."""
        size, end = self._at_once, 0
        n_rows = int(np.minimum(self.k, self._free(users)).sum())
        # Written in place: small results left between the scores of blocks would keep their memory from being reused.
        columns = [np.empty(n_rows, kind) for kind in (np.int64, np.int32, np.int64, np.float64)]
        for first, best in zip(users[::size], self._best(users), strict=True):
            start, end = end, end + len(best.users)
            for column, values in zip(columns, best, strict=True):
                column[start:end] = values.numpy()
            advance(min(size, users.stop - first))
        numbers, ranks, items, scores = map(pa.array, columns)
        titles = [] if self._titles is None else [self._titles.take(items)]
        named = [self._users.take(numbers), ranks, self._items.take(items), *titles, scores]
        if self.because:
            found = self._reasons(columns[0].astype(np.int64), columns[2].astype(np.int64))
            named.append(pa.array(found, type=self.schema.field("because").type))
        return pa.Table.from_arrays(named, schema=self.schema)

    def _reasons(self, users: IntArray, items: IntArray) -> Iterator[list[int | str]]:
        """Own items that speak for each recommendation, user by user."""
        names = self.result.item_ids
        starts = np.flatnonzero(np.diff(users, prepend=-1))
        for first, last in zip(starts, [*starts[1:], len(users)], strict=True):
            found = reasons(self.audience, int(users[first]), torch.from_numpy(items[first:last]))
            yield from ([names[own] for own in because] for because in found)

    def _free(self, users: range) -> IntArray:
        """How many items each of these users may be recommended."""
        known, who = self.audience.known, np.arange(users.start, users.stop)
        if self.allowed is None:
            return known.n_items - known.sizes(who)
        owner, at = known.flat(who)
        taken = np.bincount(owner[self.allowed.numpy()[known.items[at]]], minlength=len(who))
        return int(self.allowed.sum()) - taken


def write_recommendations(result: Result, path: Path, k: int = 10, allowed: Bool[Tensor, " n"] | None = None) -> int:
    """Write the k best items of every user as a table with columns user, rank, item, title and score; returns its rows.

    Users are scored a block at a time and the file appears when it is complete.

    Raises:
        ConfigError: the name does not end with .parquet or .csv, or k is not positive.
        StorageError: it could not be written; a file that was there is untouched.
    """
    check_table_path(path)
    everyone = Everyone(result, k, allowed)
    return write_tables(path, everyone.schema, map(everyone.table, everyone.parts))


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write tables one below the other into a .parquet or .csv file; returns its rows.

    Raises:
        StorageError: it could not be written; a file that was there is untouched.
    """
    n_rows = 0

    def write(temporary: Path) -> None:
        nonlocal n_rows
        flat = _flat(schema.empty_table()).schema if path.suffix == ".csv" else schema
        with WRITERS[path.suffix](str(temporary), flat) as writer:
            for table in _gather(tables):
                writer.write_table(_flat(table) if path.suffix == ".csv" else table)
                n_rows += table.num_rows

    write_atomically(path, write)
    return n_rows


def _flat(table: pa.Table) -> pa.Table:
    """With text in the place of lists, which CSV has not."""
    for at, column in enumerate(table.schema):
        if pa.types.is_list(column.type):
            texts = [", ".join(map(str, values)) for values in table[column.name].to_pylist()]
            table = table.set_column(at, column.name, pa.array(texts, type=pa.string()))
    return table


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
