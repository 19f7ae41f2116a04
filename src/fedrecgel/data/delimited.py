"""Delimited text files as Arrow tables, and what is wrong with them in a sentence.

Ids in text files become integers when every one of a column is written as a plain integer; one id such as `007` or
`A1` keeps the whole column as text, so nothing is lost.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from fedrecgel.data.columns import ColumnNames, choose_columns
from fedrecgel.data.parquet import MAX_COLUMNS, MAX_ROWS, OTHERWISE
from fedrecgel.data.sniff import Layout
from fedrecgel.errors import DataError

ID_TEXT = pa.dictionary(pa.int32(), pa.string())
PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
"""At most 18 digits, so that it fits 64 bits."""
MAX_LINE = 1 << 20
"""Bytes of a line of a text file: the block in which it is read."""
ONE_CHARACTER = b"\x1f"
"""Stands for `::`, because Arrow parts at one character; Unicode calls it the unit separator."""


def read_laid_out(path: Path, layout: Layout, names: ColumnNames, roles: Iterable[str], where: str) -> Any:
    """Read the columns of these roles from a file of this layout.

    Raises:
        DataError: the file is not UTF-8, ragged or unreadable, or lacks a column.
    """
    if layout.per_user:
        return _read_per_user(path, layout, where)
    check_first_line(path, layout.separator, where)
    with _with_one_character(path, layout.separator) as (plain, separator):
        found = layout.names or _header(plain, separator, where)
        chosen = choose_columns(found, names, where)
        wanted = {role: name for role, name in chosen.items() if name is not None and role in roles}
        table = read_delimited(
            plain,
            separator,
            _types(wanted),
            header=layout.names,
            skip=layout.skip,
            include=list(wanted.values()),
            where=where,
        )
    for role in ("user", "item"):
        position = table.column_names.index(wanted[role])
        ids = _plain_ids(table.column(position), f"column '{wanted[role]}' of {where}")
        table = table.set_column(position, wanted[role], ids)
    return table


def read_delimited(
    path: Path,
    delimiter: str,
    types: Mapping[str, Any],
    *,
    header: list[str] | None = None,
    skip: int = 0,
    include: list[str] | None = None,
    where: str | None = None,
) -> Any:
    """Read a delimited text file with a header line, or without one if `header` names its columns.

    Args:
        path: the file.
        delimiter: one character.
        types: Arrow types by column.
        header: names of all columns, where the file has none.
        skip: lines above the data, then.
        include: columns to read; those with types unless given.
        where: what to call the file in messages.
    """
    read = pa_csv.ReadOptions(column_names=header, skip_rows=skip)
    quotes = False if delimiter == ONE_CHARACTER.decode() else '"'
    options = {
        "parse_options": pa_csv.ParseOptions(delimiter=delimiter, quote_char=quotes),
        "convert_options": pa_csv.ConvertOptions(
            column_types=dict(types),
            include_columns=include or list(types),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }
    try:
        return pa_csv.read_csv(path, read_options=read, **options)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason: Exception = error
        if re.search("Expected|conversion error", str(error)):  # only the serial reader knows the number of the row
            read.use_threads = False
            try:
                pa_csv.read_csv(path, read_options=read, **options)
            except pa.ArrowInvalid as again:
                reason = again
        raise DataError(_explain(where or str(path), reason)) from error


def check_first_line(path: Path, separator: str, where: str) -> None:
    """Refuse a first line that is no text, too long or too wide before Arrow reads it."""
    with path.open("rb") as file:
        start = file.read(MAX_LINE)
        longer = bool(file.read(1))
    line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    if b"\0" in line:
        raise DataError(f"The header of {where} should be text. Found a zero byte. Is it a text file, saved as UTF-8?")
    if len(line) == MAX_LINE and longer:
        raise DataError(f"The header of {where} should have at most {MAX_LINE >> 20} MB. Found a longer line.")
    if (columns := line.count(separator.encode()) + 1) > MAX_COLUMNS:
        raise DataError(
            f"{where} should have at most {MAX_COLUMNS:,} columns. Found {columns:,}. "
            f"Write only the columns that are used."
        )


@contextmanager
def _with_one_character(path: Path, separator: str) -> Iterator[tuple[Path, str]]:
    """The file and its separator; where that is `::`, a temporary copy with one character in its place."""
    if len(separator) == 1:
        yield path, separator
        return
    with tempfile.TemporaryDirectory(prefix="fedrecgel-") as folder:
        copy = Path(folder) / "parted"
        with path.open("rb") as source, copy.open("wb") as target:
            while block := source.read(MAX_LINE):
                while block.endswith(separator[:1].encode()) and (more := source.read(1)):
                    block += more  # a separator that straddles blocks
                target.write(block.replace(separator.encode(), ONE_CHARACTER))
        yield copy, ONE_CHARACTER.decode()


def _read_per_user(path: Path, layout: Layout, where: str) -> Any:
    """Lines of a user and its items; a user without any has no row."""
    users, items = list[bytes](), list[bytes]()
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE), b"")):
            if len(line) == MAX_LINE:
                raise DataError(f"Each line of {where} should have at most {MAX_LINE >> 20} MB. Found a longer one.")
            user, *own = _cells_of(line, layout.separator) or [b""]
            if number < layout.skip or not own:
                continue
            users += [user] * len(own)
            items += own
            if len(items) > MAX_ROWS:
                raise DataError(f"{where} should have at most {MAX_ROWS:,} rows. Found more. {OTHERWISE}")
    try:
        text = [pa.array(ids, pa.binary()).cast(pa.string()).dictionary_encode() for ids in (users, items)]
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise DataError(f"{where} should be UTF-8. Found other bytes. Save it as UTF-8.") from error
    named = dict(zip(("user", "item"), text, strict=True))
    return pa.table({role: _plain_ids(pa.chunked_array([ids]), f"'{role}' of {where}") for role, ids in named.items()})


def _cells_of(line: bytes, separator: str) -> Sequence[bytes]:
    parts = line.split() if separator == " " else line.strip().split(separator.encode())
    return [part for part in parts if part]


def _header(path: Path, delimiter: str, where: str) -> list[str]:
    quotes = False if delimiter == ONE_CHARACTER.decode() else '"'
    try:
        with pa_csv.open_csv(path, parse_options=pa_csv.ParseOptions(delimiter=delimiter, quote_char=quotes)) as reader:
            return list(reader.schema.names)
    except UnicodeDecodeError as error:
        raise DataError(_explain(where, error)) from error
    except pa.ArrowInvalid:  # the full read names the fault and its row
        return list(read_delimited(path, delimiter, {}, where=where).column_names)


def _types(wanted: Mapping[str, str]) -> dict[str, Any]:
    """Types Arrow must not guess from the first block: ids stay text, a later rating may be a fraction."""
    types = {wanted["user"]: ID_TEXT, wanted["item"]: ID_TEXT}
    if "rating" in wanted:
        types[wanted["rating"]] = pa.float32()
    if "title" in wanted:
        types[wanted["title"]] = ID_TEXT
    if wanted.get("timestamp", "").endswith(":float"):
        types[wanted["timestamp"]] = pa.float64()
    return types


def _plain_ids(column: Any, what: str) -> Any:
    """Integers if every id is written as one, else the text."""
    ids = column.combine_chunks()
    ids = ids if isinstance(ids, pa.DictionaryArray) else pa.chunked_array([], ID_TEXT).combine_chunks()
    if not pc.all(pc.match_substring_regex(ids.dictionary, PLAIN_INTEGER)).as_py():
        if pc.any(pc.match_substring_regex(ids.dictionary, r"[\r\n]")).as_py():
            raise DataError(f"Ids in {what} should stand on one line. Found a line end: is a quote not closed?")
        return ids
    return ids.dictionary.cast(pa.int64()).take(ids.indices)


def _explain(where: str, error: Exception) -> str:
    """One sentence from what Arrow says."""
    text = _first_line(error)
    if isinstance(error, UnicodeDecodeError) or "UTF8" in text:
        return f"{where} should be UTF-8. Found other bytes. Save it as UTF-8."
    if ragged := re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", text):
        row, expected, got = ragged.groups()
        return (
            f"Each row of {where} should have {expected} columns. Found {got} in row {row or '?'}. "
            f"Correct that row or the separator."
        )
    if value := re.search(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+): (.+)", text):
        column, row, kind, found = value.groups()
        return f"Column {int(column) + 1} of {where} should hold {kind} values. Found in row {row}: {found}."
    if "straddling" in text:
        return (
            f"Each line of {where} should have at most {MAX_LINE >> 20} MB. Found a longer one. "
            f"Is a quote opened and not closed?"
        )
    if missing := re.search(r"Column '(.+)' in include_columns does not exist", text):
        return f"{where} should have a column '{missing[1]}'. Found none. Is it the right file?"
    if "Empty CSV" in text:
        return f"{where} should hold a header and interactions. Found no rows."
    return f"{where} cannot be read: {text}."


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(". ")
