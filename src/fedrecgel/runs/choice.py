"""Lists of items and their titles, read from files beside a run."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import torch
from jaxtyping import Bool
from pyarrow import parquet
from torch import Tensor

from fedrecgel.data.columns import ALIASES
from fedrecgel.data.files import check_file
from fedrecgel.errors import ConfigError, DataError

if TYPE_CHECKING:
    from fedrecgel.runs.result import Result

SHOWN = 5
"""Unknown items that a message names."""
Items = Iterable[int | str]


def some(items: Iterable[int | str]) -> str:
    """The first few of them, for a message."""
    distinct = list(dict.fromkeys(map(str, items)))
    return f"item{'s' * (len(distinct) > 1)} {first_of(distinct)}"


def first_of(names: Sequence[object]) -> str:
    """The first few names."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{', '.join(map(str, names[:SHOWN]))}{more}"


def number_items(result: Result, items: Items, what: str) -> tuple[list[int], list[int | str]]:
    """The numbers of items by their ids, and those that the run does not know, of which it warns.

    Args:
        result: the run.
        items: ids; a number typed on a command line is text.
        what: where they come from, for messages.

    Raises:
        ConfigError: no item is left.
    """
    given = list(items)
    way_out = f"Give at least one of its {len(result.item_ids):,} items, for example {result.item_ids[0]!r}."
    if not given:
        raise ConfigError(f"{what} should name items of the run. Found none. {way_out}")
    numbers = {str(name): number for number, name in enumerate(result.item_ids)}
    skipped = [item for item in given if str(item) not in numbers]
    if len(skipped) == len(given):
        raise ConfigError(f"{what} should name items of the run. It knows none of {some(skipped)}. {way_out}")
    if skipped:
        warnings.warn(f"The run does not know {some(skipped)}: left out of {what.lower()}.", stacklevel=5)
    return [numbers[str(item)] for item in given if str(item) in numbers], skipped


def allow(result: Result, among: Items | None, exclude: Items | None) -> Bool[Tensor, " n"] | None:
    """Which items may be recommended; None for all.

    Raises:
        ConfigError: the run knows none of them, or none is left.
    """
    if among is None and exclude is None:
        return None
    allowed = torch.full((len(result.item_ids),), among is None)
    if among is not None:
        allowed[number_items(result, among, "The list to choose among")[0]] = True
    if exclude is not None:
        allowed[number_items(result, exclude, "The list to exclude")[0]] = False
    if not allowed.any():
        raise ConfigError("Some items should be left to recommend. All of those to choose among are excluded.")
    return allowed


def read_items(path: str | Path) -> list[str]:
    """Ids of items in a file: the column `item` of a .csv or .parquet file, else one id a line.

    Raises:
        DataError: it cannot be read.
    """
    path = Path(path).expanduser()
    check_file(path)
    if path.suffix.lower() in (".csv", ".tsv", ".parquet"):
        return [row[0] for row in _columns(path, ("item",))]
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} should be a text file in UTF-8 with one item a line. It cannot be read.") from error
    return [line.strip() for line in lines if line.strip()]


def read_titles(path: str | Path, items: Sequence[int | str]) -> list[str]:
    """The title of each item of a run, by their ids, from a .csv or .parquet file with columns `item` and `title`.

    Titles of other items are ignored. Warns if items are left without one: their ids stand in its place.

    Raises:
        DataError: it cannot be read, or has a title for none of the items.
    """
    path = Path(path).expanduser()
    check_file(path)
    titles = {item: " ".join(title.split()) for item, title in _columns(path, ("item", "title"))}
    found = [titles.get(str(name)) or "" for name in items]
    missing = [name for name, title in zip(items, found, strict=True) if not title]
    if len(missing) == len(found):
        raise DataError(
            f"{path} should have titles for items of the run. Found {len(titles):,} titles for other items: the run "
            f"has {some(items)}."
        )
    if missing:
        warnings.warn(f"{path} has no title for {some(missing)}: shown by id.", stacklevel=2)
    return [title or str(name) for name, title in zip(items, found, strict=True)]


def _columns(path: Path, roles: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns of these roles as text, row by row."""
    try:
        if path.suffix.lower() == ".parquet":
            names = parquet.read_schema(path).names
            chosen = _find(names, roles, path)
            table = parquet.read_table(path, columns=chosen)
            columns = [[("" if value is None else str(value)) for value in table[name].to_pylist()] for name in chosen]
            return list(zip(*columns, strict=True))
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            header = next(reader)
            at = [header.index(name) for name in _find(header, roles, path)]
            return [tuple(row[place].strip() for place in at) for row in reader if len(row) > max(at)]
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}. Save it again, as UTF-8.") from error


def _find(names: list[str], roles: Sequence[str], path: Path) -> list[str]:
    """The column of each role by its usual names."""
    plain = {name.strip().lower().replace("_", "").replace(" ", ""): name for name in reversed(names)}
    found = []
    for role in roles:
        usual = [word.replace("_", "") for group in ALIASES[role] for word in group]
        match = next((plain[word] for word in usual if word in plain), None)
        if match is None:
            raise DataError(f"{path} should have a column '{role}'. Found: {', '.join(names[:20])}.")
        found.append(match)
    return found
