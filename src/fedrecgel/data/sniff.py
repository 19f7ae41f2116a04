"""How a text file is laid out: what parts its columns, and whether its first line names them."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrecgel.data.columns import ALIASES, ColumnNames, is_alias
from fedrecgel.errors import DataError

SEPARATORS = {"\t": "tabs", "::": "'::'", ";": "';'", "|": "'|'", ",": "commas", " ": "spaces"}
"""What may part columns, and what to call it."""
SAMPLE_BYTES, SAMPLE_LINES = 1 << 16, 20
A_TIME = 100_000_000
"""Numbers from here on are seconds (1973) or finer; ratings are not."""
MORE = "..."
"""Last of the names of columns: every further column is another item of the same user."""
UNUSED = "-"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


@dataclass(frozen=True)
class Layout:
    """How to read a text file."""

    separator: str
    names: list[str] | None = None
    """Columns by position; None: the first line has them."""
    skip: int = 0
    """Lines above the data, where names are given."""
    per_user: bool = False
    """A line is a user and all its items."""


def find_layout(
    path: Path, usual: str, columns: Sequence[str] | None, given: ColumnNames, where: str, say: Callable[[str], None]
) -> Layout:
    """Look at the first lines.

    Args:
        path: a text file.
        usual: the separator of its suffix.
        columns: names by position, given by hand.
        given: names of roles, given by hand.
        where: what to call the file.
        say: told in a sentence what was assumed.

    Raises:
        DataError: the first line is data, and which column is which cannot be told.
    """
    lines = _sample(path)
    if not lines:
        return Layout(usual)
    separator = find_separator(lines, usual)
    if separator != usual:
        say(f"Columns of {where} are parted by {SEPARATORS[separator]}.")
    rows = [_cells(line, separator) for line in lines]
    named = any(_names_a_role(cell, given) for cell in rows[0])
    if columns is not None:
        return _as_given(columns, rows, separator, named=named, where=where, say=say)
    if named or not _is_data(rows):
        return Layout(separator)
    widths = {len(row) for row in rows}
    if separator == " " and (len(widths) > 1 or max(widths) > 4):
        say(f"{where} has no header: each line is taken as a user and its items.")
        return Layout(separator, ["user", "item"], per_user=True)
    names = _by_position(rows)
    if names is None:
        raise DataError(
            f"The first line of {where} should name the columns. Found data in {len(rows[0])} columns. "
            f"Name them with --columns user,item,…"
        )
    say(f"{where} has no header: its columns are taken as {', '.join(names)}. Name them with --columns otherwise.")
    return Layout(separator, names)


def find_separator(lines: Sequence[str], usual: str) -> str:
    """What parts all lines alike into the most columns; the usual one where that decides nothing."""
    best, most = usual, 1
    for separator in (usual, *SEPARATORS):
        widths = {len(_cells(line, separator)) for line in lines}
        if separator == " " and not _only_spaces(lines):
            continue
        if (len(widths) == 1 or separator == " ") and max(widths, default=1) > most:
            best, most = separator, max(widths)
    if most == 1 and lines and len(_cells(lines[0], usual)) == 1:  # ragged: the first line says most
        others = [one for one in SEPARATORS if one != " "]
        return max((usual, *others), key=lambda one: len(_cells(lines[0], one)))
    return best


def _only_spaces(lines: Sequence[str]) -> bool:
    """Whether nothing else parts the first line: names and titles have spaces, too."""
    return bool(lines) and all(one == " " or len(_cells(lines[0], one)) == 1 for one in SEPARATORS)


def _sample(path: Path) -> list[str]:
    with path.open("rb") as file:
        start = file.read(SAMPLE_BYTES)
        more = bool(file.read(1))
    lines = re.split(r"\r\n|\r|\n", start.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace"))
    if more and len(lines) > 1:
        lines = lines[:-1]  # cut
    return [line for line in lines if line.strip()][:SAMPLE_LINES]


def _cells(line: str, separator: str) -> list[str]:
    if separator == "::":
        return line.split(separator)
    if separator == " ":
        return line.split()
    return next(csv.reader([line], delimiter=separator), [""])


def _names_a_role(cell: str, given: ColumnNames) -> bool:
    return any(is_alias(cell, role) or cell == getattr(given, role) for role in ALIASES)


def _is_data(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row, which names no role, has a number or date, and no word above a column of them."""
    first, rest = rows[0], rows[1:]
    if not any(_is_value(cell) for cell in first):
        return False
    columns = [[row[k] for row in rest if k < len(row)] for k in range(len(first))]
    return not any(
        cells and all(map(_is_value, cells)) and not _is_value(cell) for cell, cells in zip(first, columns, strict=True)
    )


def _is_value(cell: str) -> bool:
    cell = cell.strip()
    return bool(NUMBER.fullmatch(cell) or ISO_DATE.fullmatch(cell))


def _is_time(cells: Sequence[str]) -> bool:
    return all(
        ISO_DATE.fullmatch(cell.strip()) or (NUMBER.fullmatch(cell.strip()) and float(cell) >= A_TIME) for cell in cells
    )


def _by_position(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Names of two to four columns without any; None where that would be a guess."""
    width = len(rows[0])
    if width not in (2, 3, 4):
        return None
    more = [[row[k] for row in rows if k < len(row)] for k in range(2, width)]
    if not all(_is_value(cell) for cells in more for cell in cells):
        return None
    if width == 4 and _is_time(more[0]) and not _is_time(more[1]):
        return ["user", "item", "timestamp", "rating"]
    if width == 3 and _is_time(more[0]):
        return ["user", "item", "timestamp"]
    return ["user", "item", "rating", "timestamp"][:width]


def _as_given(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    separator: str,
    *,
    named: bool,
    where: str,
    say: Callable[[str], None],
) -> Layout:
    if named:
        say(f"The first line of {where} is a header: it is skipped, and columns are named as given.")
    if columns[-1] == MORE:
        return Layout(separator, list(columns[:-1]), int(named), per_user=True)
    if len(columns) != len(rows[0]):
        raise DataError(
            f"--columns should name every column of {where}, '{UNUSED}' for one that is not used. "
            f"Found {len(columns)} names and {len(rows[0])} columns."
        )
    names = [f"{UNUSED}{k}" if name == UNUSED else name for k, name in enumerate(columns)]
    return Layout(separator, names, int(named))
