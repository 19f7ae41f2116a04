"""One door to data: a name, the path of a file, or a data frame."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from fedrecgel.data import demo, synthetic
from fedrecgel.data.columns import ALIASES, BY_NAME, ColumnNames, Columns, pick_columns
from fedrecgel.data.download import locate, sha256_of
from fedrecgel.data.files import read_table
from fedrecgel.data.interactions import MIN_INTERACTIONS, Interactions
from fedrecgel.data.packed import inner_name
from fedrecgel.data.sources import SOURCES, Source, Statistics
from fedrecgel.data.wording import speaks_python
from fedrecgel.errors import ConfigError, DataError, unknown

NAMES = ("demo", "synthetic", *SOURCES)
"""Every named data set."""


@dataclass(frozen=True)
class DataSettings:
    """Which interactions."""

    name: str = "demo"
    """A named data set, or the path of a file: text, JSON lines, Parquet or .inter, also packed as .gz or .zst."""
    dir: str | None = None
    """Folder with the raw files of named data sets; else FEDRECGEL_DATA, the cache, or a download."""
    user: str | None = None
    """Column of user ids in an own file; found by name when not given, like the next four."""
    item: str | None = None
    """Column of item ids."""
    timestamp: str | None = None
    """Column that orders a user's interactions."""
    rating: str | None = None
    """Column of ratings, used only by min_rating."""
    title: str | None = None
    """Column of the items' titles, kept to show them."""
    min_interactions: Annotated[int, Meta(ge=1)] = MIN_INTERACTIONS
    """Users with fewer interactions are dropped."""
    min_rating: float | None = None
    """Keep only interactions rated at least this."""
    distinct: bool | None = None
    """Keep only the latest interaction of each user-item pair; not given: as the data set says."""
    columns: str | None = None
    """Names of the columns of a text file without a header, by position: `user,item,rating,timestamp`; `-` for one
    that is not used; `user,item,...` where a line is a user and all its items."""
    users: Annotated[int, Meta(ge=1)] | None = None
    """Users of the data set `synthetic`."""
    items: Annotated[int, Meta(ge=1)] | None = None
    """Items of `synthetic`."""
    interactions: Annotated[int, Meta(ge=1)] | None = None
    """Interactions of `synthetic`."""


@speaks_python
def load(
    source: Any,
    *,
    data_dir: str | Path | None = None,
    columns: str | Sequence[str] | None = None,
    user: str | None = None,
    item: str | None = None,
    timestamp: str | None = None,
    rating: str | None = None,
    title: str | None = None,
    min_interactions: int = MIN_INTERACTIONS,
    min_rating: float | None = None,
    distinct: bool | None = None,
) -> Interactions:
    """Load a data set.

    Warns if a file has no header and its columns were taken by position.

    Args:
        source: `demo`, another name that `fedrecgel data list` shows, the path of a file (CSV, TSV, other text, JSON
            lines, Parquet or .inter, also as .gz or .zst), or a data frame (pandas, polars, Arrow, DuckDB, a dict of
            columns).
        data_dir: folder with the raw files of named data sets; else `FEDRECGEL_DATA`, the cache or a download.
        columns: names of the columns of a text file without a header, by position, as in `"user,item,rating"`.
        user: column of user ids; found by name when not given, like the next four.
        item: column of item ids.
        timestamp: column that orders a user's interactions.
        rating: column of ratings, used only by `min_rating`.
        title: column of the items' titles, kept to show them.
        min_interactions: users with fewer are dropped.
        min_rating: keep only interactions rated at least this.
        distinct: keep only the latest interaction of each user-item pair; None does what the data set says.

    Raises:
        ConfigError: the name is unknown, or columns are given for a named data set.
        DataError: the data cannot be found, read or used, or is not the published one.
    """
    named = ColumnNames(user, item, timestamp, rating, title)
    if not isinstance(source, str | Path):
        if columns is not None or data_dir is not None:
            raise ConfigError("--columns and --data-dir belong to files. Found a data frame; leave them out.")
        return Interactions.from_frame(
            source,
            **asdict(named),
            min_interactions=min_interactions,
            min_rating=min_rating,
            distinct=bool(distinct),
        )
    loaded = load_data(
        DataSettings(
            name=source if isinstance(source, str) else str(source.absolute()),  # a Path is never a name
            dir=None if data_dir is None else str(data_dir),
            **asdict(named),
            min_interactions=min_interactions,
            min_rating=min_rating,
            distinct=distinct,
            columns=columns if columns is None or isinstance(columns, str) else ",".join(columns),
        )
    )
    for sentence in loaded.assumed:
        if "no header" in sentence:
            warnings.warn(sentence.replace("--columns", "columns"), stacklevel=3)
    return loaded


def load_data(settings: DataSettings) -> Interactions:
    """The data these settings describe, with a note of them."""
    name = settings.name
    columns = ColumnNames(settings.user, settings.item, settings.timestamp, settings.rating, settings.title)
    if name in NAMES and (columns != BY_NAME or settings.columns is not None):
        raise ConfigError(
            f"data.columns, data.user, data.item, data.timestamp, data.rating and data.title name columns of an own "
            f"file, and '{name}' is a named data set. Leave them out."
        )
    sizes = (settings.users, settings.items, settings.interactions)
    if name != "synthetic" and any(sizes):
        raise ConfigError(f"data.users, data.items and data.interactions are sizes of 'synthetic'. Found '{name}'.")
    if name == "synthetic":
        if settings.min_interactions != MIN_INTERACTIONS or settings.min_rating is not None or settings.distinct:
            raise ConfigError("'synthetic' is made as asked for: data.users, data.items and data.interactions are all.")
        defaults = (synthetic.USERS, synthetic.ITEMS, synthetic.INTERACTIONS)
        loaded = synthetic.generate(*(size or usual for size, usual in zip(sizes, defaults, strict=True)))
    elif name == "demo":
        loaded = _number(demo.generate(), settings, name, source="generated", licence="Apache-2.0", sha256=demo.SHA256)
    elif name in SOURCES:
        loaded = _load_named(SOURCES[name], settings)
    else:
        loaded = _load_file(name, settings, columns)
    known = {key: value for key, value in asdict(settings).items() if value is not None}
    return replace(loaded, loaded_as=known)


def _number(columns: Columns, settings: DataSettings, name: str, **origin: Any) -> Interactions:
    return Interactions.from_columns(
        columns,
        name=name,
        min_interactions=settings.min_interactions,
        min_rating=settings.min_rating,
        **{"distinct": bool(settings.distinct), **origin},
    )


def _load_file(name: str, settings: DataSettings, columns: ColumnNames) -> Interactions:
    path = Path(name).expanduser()
    if not path.exists() and not _looks_like_path(name):
        raise ConfigError(unknown("data set", name, NAMES))
    rated = settings.min_rating is not None or settings.rating is not None
    roles = [role for role in ALIASES if role != "rating" or rated]
    positions = None if settings.columns is None else [name.strip() for name in settings.columns.split(",")]
    assumed: list[str] = []
    table = read_table(path, columns, roles, columns=positions, say=assumed.append)
    picked = pick_columns(table, columns, str(path))
    loaded = _number(picked, settings, data_label(name), source=str(path), sha256=sha256_of(path))
    return replace(loaded, assumed=assumed)


def data_label(name: str) -> str:
    """What to call a data set: its name, or that of its file without suffixes."""
    return Path(inner_name(Path(name))).stem


def _load_named(source: Source, settings: DataSettings) -> Interactions:
    raw = locate(source, settings.dir)
    distinct = source.distinct if settings.distinct is None else settings.distinct
    loaded = _number(
        source.parse(raw.path),
        settings,
        source.name,
        distinct=distinct,
        source=source.url or source.obtain,
        licence=source.licence,
        sha256=raw.sha256,
    )
    as_published = settings.min_interactions == MIN_INTERACTIONS and settings.min_rating is None
    if as_published and distinct == source.distinct:
        _check_statistics(loaded, source, raw.path)
    return loaded


def _check_statistics(loaded: Interactions, source: Source, path: Path) -> None:
    found = Statistics(loaded.n_users, loaded.n_items, len(loaded))
    off = [
        (f"{have:,} {field}", f"{want:,}")
        for field, have, want in zip(Statistics._fields, found, source.expected, strict=True)
        if have != want
    ]
    if off:
        have, want = (", ".join(column) for column in zip(*off, strict=True))
        raise DataError(
            f"Dataset '{source.name}' has {have} after parsing, expected {want} "
            f"with min_interactions={MIN_INTERACTIONS}. Replace {path} by the published file ({source.obtain})."
        )


def _looks_like_path(text: str) -> bool:
    return bool(Path(text).suffix) or any(separator in text for separator in "/\\~")
