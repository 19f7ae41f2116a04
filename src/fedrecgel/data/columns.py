"""Which column is the user, which the item: from any Arrow table to checked arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedrecgel.errors import DataError

ITEM_IDS = (
    *("movie_id", "film_id", "product_id", "book_id", "article_id", "news_id", "song_id", "track_id", "artist_id"),
    *("video_id", "game_id", "anime_id", "business_id", "poi_id", "content_id", "asin", "parent_asin", "isbn", "sku"),
)
ALIASES = {
    "user": (("user", "user_id", "uid"), ("customer_id", "member_id", "visitor_id", "reviewer_id", "account_id")),
    "item": (("item", "item_id", "iid"), ITEM_IDS),
    "timestamp": (
        ("timestamp", "time", "ts", "date", "datetime"),
        ("unix_time", "unix_timestamp", "event_time", "event_timestamp", "created_at", "unix_review_time"),
    ),
    "rating": (("rating", "score", "weight"), ("stars", "overall", "book_rating")),
    "title": (("title",), ("item_title",), ("movie_title",), ("product_title",), ("book_title",), ("item_name",)),
}
"""Names of each role, in any case and with or without spaces, `_` and `-`.

A later group counts only where an earlier one has no match.
"""
REQUIRED = ("user", "item")
NO_TIME = np.iinfo(np.int64).min
"""How NumPy and pandas store a missing time; its opposite does not fit 64 bits, so it cannot be ordered, either."""
SHOWN = 20
"""More columns than this are not listed in a message."""


@dataclass(frozen=True)
class ColumnNames:
    """Names given by hand; None means: find it."""

    user: str | None = None
    item: str | None = None
    timestamp: str | None = None
    rating: str | None = None
    title: str | None = None


BY_NAME = ColumnNames()
"""Find every column by its name."""


@dataclass(frozen=True)
class Columns:
    """Raw columns of equal length. Users and items are integers or text, as a dictionary or not; times are integers."""

    users: Any  # pyarrow.Array; pyarrow ships no types
    items: Any
    times: np.ndarray[Any, np.dtype[np.int64]] | None
    ratings: np.ndarray[Any, np.dtype[np.float32]] | None
    titles: Any = None
    """Text of each row's item, which may be missing."""


def pick_columns(table: Any, names: ColumnNames = BY_NAME, where: str = "the table") -> Columns:
    """Find and check the columns of an Arrow table.

    Raises:
        DataError: a column is missing, ambiguous, empty, or holds missing or unusable values.
    """
    chosen = choose_columns(table.column_names, names, where)
    if table.num_rows == 0:
        raise DataError(f"{where} should hold interactions. Found a header and no rows.")
    column = {role: table.column(name).combine_chunks() for role, name in chosen.items() if name is not None}
    return Columns(
        users=_ids(column["user"], f"column '{chosen['user']}' of {where}"),
        items=_ids(column["item"], f"column '{chosen['item']}' of {where}"),
        times=_times(column["timestamp"], f"column '{chosen['timestamp']}' of {where}")
        if "timestamp" in column
        else None,
        ratings=_ratings(column["rating"], f"column '{chosen['rating']}' of {where}") if "rating" in column else None,
        titles=_titles(column["title"], f"column '{chosen['title']}' of {where}") if "title" in column else None,
    )


def choose_columns(found: list[str], names: ColumnNames = BY_NAME, where: str = "the table") -> dict[str, str | None]:
    """The column of each role, None for an optional one that is not there.

    Raises:
        DataError: a column is missing, ambiguous or has two roles.
    """
    chosen = {role: _find(found, role, getattr(names, role), where) for role in ALIASES}
    for first, second in combinations((role for role in ALIASES if chosen[role] is not None), 2):
        if chosen[first] == chosen[second]:
            raise DataError(
                f"data.{first} and data.{second} should be two columns of {where}. Found '{chosen[first]}' for both."
            )
    return chosen


def is_alias(name: str, role: str) -> bool:
    """Whether a column of this name is found for this role."""
    return any(_plain(name) in map(_plain, group) for group in ALIASES[role])


def _plain(name: str) -> str:
    """`user_id:token` (RecBole), User-ID and userId are the same name to a reader."""
    return re.sub(r"[\s_-]", "", re.sub(r":\w+$", "", name.strip())).lower()


def _find(found: list[str], role: str, given: str | None, where: str) -> str | None:
    if given is not None:
        if given not in found:
            raise DataError(f"{where} should have the column '{given}' (data.{role}). Found: {_listed(found)}.")
        if found.count(given) > 1:
            raise DataError(f"{where} should have one column '{given}' (data.{role}). Found {found.count(given)}.")
        return given
    groups = ([name for name in found if _plain(name) in map(_plain, group)] for group in ALIASES[role])
    matches = next(filter(None, groups), [])
    if len(matches) > 1:
        raise DataError(
            f"{where} has several columns that could be the {role}: {_listed(matches)}. "
            f"Name one with --set data.{role}=…"
        )
    if not matches and role in REQUIRED:
        raise DataError(
            f"{where} should have a column '{role}'. Found: {_listed(found) or 'no columns'}. "
            + (
                f"Name it with --set data.{role}=…"
                if len(found) > 1
                else "Is the first line a header, and are columns parted by commas (.csv) or tabs (.tsv)?"
            )
        )
    return matches[0] if matches else None


def _listed(names: list[str]) -> str:
    more = [f"… ({len(names):,} in all)"] if len(names) > SHOWN else []
    return ", ".join([*names[:SHOWN], *more])


def _no_gaps(column: Any, what: str) -> None:
    missing = int(pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0)
    if missing:
        raise DataError(
            f"{what[0].upper() + what[1:]} should have no missing values. Found {missing:,} of {len(column):,}."
        )


def _ids(column: Any, what: str) -> Any:
    """Integers, or text, which stays a dictionary if it was one: long names that repeat take memory once."""
    _no_gaps(column, what)
    kind = column.type
    if pa.types.is_dictionary(kind):
        values = _ids(column.dictionary, what)
        return values.take(column.indices) if pa.types.is_integer(values.type) else _with_values(column, values)
    if pa.types.is_integer(kind):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:  # unsigned hashes beyond 2^63 are names, not numbers
            return column.cast(pa.large_string())
    if pa.types.is_floating(kind):  # pandas turns integers into floats as soon as one was missing
        try:
            ids = column.cast(pa.float64()).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise DataError(f"{what[0].upper() + what[1:]} should hold ids. Found fractions.") from error
        exact = 2 ** (np.finfo(kind.to_pandas_dtype()).nmant + 1)
        if pc.any(pc.greater_equal(pc.abs(ids), exact)).as_py():
            raise DataError(
                f"{what[0].upper() + what[1:]} should hold ids. Found numbers of {exact:,} or more as {kind}, which "
                f"does not tell neighbours apart. Store integers or text."
            )
        return ids
    if _is_text(kind):
        text = column.cast(pa.large_string())
        if pc.any(pc.equal(pc.utf8_length(text), 0)).as_py():
            raise DataError(f"{what[0].upper() + what[1:]} should have no missing values. Found empty ids.")
        return text
    raise DataError(f"{what[0].upper() + what[1:]} should hold integers or text. Found {kind}.")


def _with_values(column: Any, values: Any) -> Any:
    return pa.DictionaryArray.from_arrays(column.indices, values)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _times(column: Any, what: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    _no_gaps(column, what)
    kind = column.type
    if pa.types.is_dictionary(kind):
        each: np.ndarray[Any, np.dtype[np.int64]] = _times(column.dictionary, what)[column.indices.to_numpy()]
        return each
    if pa.types.is_floating(kind) or (pa.types.is_uint64(kind) and pc.max(column).as_py() >= 2**63):
        return _order(column.to_numpy(zero_copy_only=False), what)
    try:
        if _is_text(kind):
            column = _cast_first(column, pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
        elif pa.types.is_date(kind):
            column = column.cast(pa.timestamp("us"))
        elif pa.types.is_time32(kind):
            column = column.cast(pa.int32())
        elif not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
            raise DataError(f"{what[0].upper() + what[1:]} should hold numbers or dates. Found {kind}.")
        times = np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{what[0].upper() + what[1:]} should hold numbers or ISO dates. Found {column[0]}.") from error
    if missing := int((times == NO_TIME).sum()):
        raise DataError(
            f"{what[0].upper() + what[1:]} should have no missing values. Found {missing:,} of {len(times):,}: "
            f"the lowest 64-bit number stands for no time."
        )
    return times


def _order(values: Any, what: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Ranks: only the order of times matters, and they keep fractions of a second and numbers beyond 2^63."""
    if not np.isfinite(values).all():
        raise DataError(f"{what[0].upper() + what[1:]} should hold finite numbers. Found infinity.")
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _cast_first(column: Any, *kinds: Any) -> Any:
    """The column as the first type that all its values have."""
    for kind in kinds[:-1]:
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column.cast(kinds[-1])


def _ratings(column: Any, what: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    _no_gaps(column, what)
    try:
        return np.asarray(column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float32)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{what[0].upper() + what[1:]} should hold numbers. Found {column.type}.") from error


def _titles(column: Any, what: str) -> Any:
    """Text as a dictionary; titles repeat with every row of their item."""
    if pa.types.is_dictionary(column.type):
        return _with_values(column, _titles(column.dictionary, what).cast(pa.large_string()))
    try:
        return column.cast(pa.large_string()).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{what[0].upper() + what[1:]} should hold text. Found {column.type}.") from error
