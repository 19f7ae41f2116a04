"""Interactions: who touched what, and when, with users and items numbered from 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedrecgel.data.columns import ColumnNames, Columns, pick_columns
from fedrecgel.data.wording import speaks_python
from fedrecgel.errors import DataError

if TYPE_CHECKING:
    from fedrecgel.data.split import Split

MIN_INTERACTIONS = 5
"""Users with fewer interactions are dropped (section 5 of the paper)."""


@dataclass(frozen=True, eq=False)
class Interactions:
    """One row per interaction, in the order of the source.

    Users and items are numbered in the sorted order of their original ids, so numbering does not depend
    on the order of rows. A pair may occur several times (Last.fm counts tag assignments).
    """

    name: str
    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    times: npt.NDArray[np.int64] | None
    user_ids: list[int] | list[str] = field(repr=False)
    item_ids: list[int] | list[str] = field(repr=False)
    min_interactions: int = MIN_INTERACTIONS
    dropped_users: int = 0
    source: str = "in memory"
    licence: str = "unknown"
    sha256: str | None = None
    loaded_as: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings of `load` that give this data again; empty for data handed over in memory."""
    item_titles: list[str] | None = field(default=None, repr=False)
    """What people call each item, in the order of `item_ids`; the id where a title is missing."""
    assumed: list[str] = field(default_factory=list, repr=False)
    """What reading the file took for granted, a sentence each."""

    @property
    def n_users(self) -> int:
        """How many users remain."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """How many items the remaining users touched."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.users)

    @classmethod
    @speaks_python
    def from_frame(
        cls,
        frame: Any,
        *,
        name: str = "frame",
        user: str | None = None,
        item: str | None = None,
        timestamp: str | None = None,
        rating: str | None = None,
        title: str | None = None,
        min_interactions: int = MIN_INTERACTIONS,
        min_rating: float | None = None,
        distinct: bool = False,
    ) -> Interactions:
        """Interactions from any data frame: pandas, polars (lazy, too), Arrow, DuckDB, or a dict of columns.

        Args:
            frame: one row per interaction.
            name: what to call it in results.
            user: column of user ids; found by name when not given, like the next four.
            item: column of item ids.
            timestamp: column that orders a user's interactions; optional.
            rating: column of ratings, used only by `min_rating`; optional.
            title: column of the items' titles, kept to show them; optional.
            min_interactions: users with fewer are dropped.
            min_rating: keep only interactions rated at least this.
            distinct: keep only the latest interaction of each user-item pair.
        """
        table = frame if isinstance(frame, pa.Table) else _as_table(frame)
        columns = pick_columns(table, ColumnNames(user, item, timestamp, rating, title), f"data '{name}'")
        return cls.from_columns(
            columns, name=name, min_interactions=min_interactions, min_rating=min_rating, distinct=distinct
        )

    @classmethod
    def from_columns(
        cls,
        columns: Columns,
        *,
        name: str,
        min_interactions: int = MIN_INTERACTIONS,
        min_rating: float | None = None,
        distinct: bool = False,
        **origin: Any,
    ) -> Interactions:
        """Number users and items, keep distinct pairs if asked, then drop small users."""
        users, user_ids = _number(columns.users)
        items, item_ids = _number(columns.items)
        titles = None if columns.titles is None else _titles_of(items, item_ids, columns.titles)
        keep = np.arange(len(users))
        if min_rating is not None:
            if columns.ratings is None:
                raise DataError(
                    f"data.min_rating needs a rating column, and '{name}' has none. Name it with --set data.rating=…"
                )
            keep = keep[columns.ratings >= min_rating]
        if distinct:
            keep = keep[_latest_of_each_pair(users[keep], items[keep], columns.times, keep)]
        counts = np.bincount(users[keep], minlength=len(user_ids))
        n_before = int((np.bincount(users, minlength=len(user_ids)) > 0).sum())
        keep = keep[counts[users[keep]] >= min_interactions]
        if len(keep) == 0:
            raise DataError(
                f"'{name}' should have users with at least {min_interactions} interactions. "
                f"Found {n_before:,} users, the largest with {counts.max():,}. Lower data.min_interactions or add data."
            )
        user_kept, users = _renumber(users[keep], len(user_ids))
        item_kept, items = _renumber(items[keep], len(item_ids))
        return cls(
            name=name,
            users=users,
            items=items,
            times=None if columns.times is None else columns.times[keep],
            user_ids=[user_ids[k] for k in user_kept],
            item_ids=[item_ids[k] for k in item_kept],
            min_interactions=min_interactions,
            dropped_users=n_before - len(user_kept),
            item_titles=None if titles is None else [titles[k] for k in item_kept],
            **origin,
        )

    @speaks_python
    def split(self, **options: Any) -> Split:
        """Hold items out: each user's latest one, or as `kind` says; the options are fields of `SplitSettings`."""
        from fedrecgel.data.protocols import make_split  # it needs this class

        return make_split(self, **options)


def _as_table(frame: Any) -> Any:
    try:
        if hasattr(frame, "collect") and not hasattr(frame, "__arrow_c_stream__"):  # polars computes a lazy frame now
            frame = frame.collect()
        return pa.table(frame)
    except Exception as error:  # of whichever library the frame is
        raise DataError(
            f"A data frame should be pandas, polars, Arrow, DuckDB or a dict of equally long columns. "
            f"Found {type(frame).__name__}: {str(error).partition(chr(10))[0]}"
        ) from error


def _renumber(numbers: npt.NDArray[np.int32], size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The numbers that occur, and each entry's position among them; no sorting, because there may be many millions."""
    occurs = np.bincount(numbers, minlength=size) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs, dtype=np.int32) - 1)[numbers]


def _number(raw: Any) -> tuple[npt.NDArray[np.int32], list[Any]]:
    """Numbers in sorted order of the ids, and the ids, among them those of a dictionary that no row has."""
    words = raw.dictionary if pa.types.is_dictionary(raw.type) else raw
    encoded = words.dictionary_encode()  # a dictionary of others may hold a word twice
    ids = encoded.dictionary.to_pylist()
    order = sorted(range(len(ids)), key=ids.__getitem__)
    rank = np.empty(len(ids), dtype=np.int32)
    rank[order] = np.arange(len(ids))
    numbers = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    if words is not raw:
        numbers = numbers[raw.indices.to_numpy(zero_copy_only=False)]
    return numbers, [ids[k] for k in order]


def _titles_of(items: npt.NDArray[np.int32], item_ids: list[Any], titles: Any) -> list[str]:
    """The first title that a row of each item has, on one line; its id if none has one."""
    words = [" ".join((word or "").split()) for word in titles.dictionary.to_pylist()]
    words.append("")  # for rows without a title
    codes = titles.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.array([bool(word) for word in words])[codes])[::-1]  # the first row is written last
    first = np.full(len(item_ids), len(words) - 1)
    first[items[rows]] = codes[rows]
    return [words[code] or str(item) for code, item in zip(first, item_ids, strict=True)]


def _latest_of_each_pair(
    users: npt.NDArray[np.int32],
    items: npt.NDArray[np.int32],
    times: npt.NDArray[np.int64] | None,
    rows: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Positions of the last occurrence of each pair by time, then by row; in row order."""
    when = rows if times is None else times[rows]
    order = np.lexsort((rows, when, items, users))
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (np.diff(users[order]) != 0) | (np.diff(items[order]) != 0)
    return np.sort(order[last])
