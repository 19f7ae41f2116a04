"""One door to data: a name, or the path of a file."""

from __future__ import annotations

from pathlib import Path

from fedrecgel.data import demo
from fedrecgel.data.columns import ALIASES, BY_NAME, ColumnNames, pick_columns
from fedrecgel.data.download import locate, sha256_of
from fedrecgel.data.files import read_table
from fedrecgel.data.interactions import MIN_INTERACTIONS, Interactions
from fedrecgel.data.sources import SOURCES, Source, Statistics
from fedrecgel.errors import ConfigError, DataError, unknown

NAMES = ("demo", *SOURCES)
"""Every named data set."""


def load(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    user: str | None = None,
    item: str | None = None,
    timestamp: str | None = None,
    rating: str | None = None,
    min_interactions: int = MIN_INTERACTIONS,
    min_rating: float | None = None,
    distinct: bool | None = None,
) -> Interactions:
    """Load a data set.

    Args:
        name_or_path: `demo`, another name that `fedrecgel data list` shows, or a .csv, .tsv, .parquet or .inter file.
        data_dir: folder with the raw files of named data sets; else `FEDRECGEL_DATA`, the cache or a download.
        user: column of user ids in an own file; found by name when not given, like the next three.
        item: column of item ids.
        timestamp: column that orders a user's interactions.
        rating: column of ratings, used only by `min_rating`.
        min_interactions: users with fewer are dropped.
        min_rating: keep only interactions rated at least this.
        distinct: keep only the latest interaction of each user-item pair; None does what the data set says.

    Raises:
        ConfigError: the name is unknown, or columns are given for a named data set.
        DataError: the data cannot be found, read or used, or is not the published one.
    """
    names = ColumnNames(user, item, timestamp, rating)
    if name_or_path in NAMES and names != BY_NAME:
        raise ConfigError(
            f"data.user, data.item, data.timestamp and data.rating name columns of an own file, "
            f"and '{name_or_path}' is a named data set. Leave them out."
        )
    if name_or_path == "demo":
        return Interactions.from_columns(
            demo.generate(),
            name="demo",
            min_interactions=min_interactions,
            min_rating=min_rating,
            distinct=bool(distinct),
            source="generated",
            licence="Apache-2.0",
            sha256=demo.SHA256,
        )
    if isinstance(name_or_path, str) and name_or_path in SOURCES:
        return _load_named(SOURCES[name_or_path], data_dir, min_interactions, min_rating, distinct)
    path = Path(name_or_path).expanduser()
    if isinstance(name_or_path, str) and not path.exists() and not _looks_like_path(name_or_path):
        raise ConfigError(unknown("data set", name_or_path, NAMES))
    roles = [role for role in ALIASES if role != "rating" or min_rating is not None or rating is not None]
    table = read_table(path, names, roles)
    return Interactions.from_columns(
        pick_columns(table, names, str(path)),
        name=path.stem,
        min_interactions=min_interactions,
        min_rating=min_rating,
        distinct=bool(distinct),
        source=str(path),
        sha256=sha256_of(path),
    )


def _load_named(
    source: Source,
    data_dir: str | Path | None,
    min_interactions: int,
    min_rating: float | None,
    distinct: bool | None,
) -> Interactions:
    raw = locate(source, data_dir)
    loaded = Interactions.from_columns(
        source.parse(raw.path),
        name=source.name,
        min_interactions=min_interactions,
        min_rating=min_rating,
        distinct=source.distinct if distinct is None else distinct,
        source=source.url or source.obtain,
        licence=source.licence,
        sha256=raw.sha256,
    )
    as_published = min_interactions == MIN_INTERACTIONS and min_rating is None
    if as_published and distinct in (None, source.distinct):
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
