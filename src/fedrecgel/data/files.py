"""Own data: CSV, TSV, Parquet and RecBole `.inter` files, and delimited raw files, as Arrow tables.

Only the columns that are needed are read. Ids in text files become integers when every one of a column is
written as a plain integer; one id such as `007` or `A1` keeps the whole column as text, so nothing is lost.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from fedrecgel.data.columns import ALIASES, BY_NAME, ColumnNames, choose_columns
from fedrecgel.data.parquet import MAX_COLUMNS, read_parquet
from fedrecgel.errors import DataError

DELIMITERS = {".csv": ",", ".tsv": "\t", ".inter": "\t"}
SUFFIXES = (".csv", ".tsv", ".parquet", ".inter")
ID_TEXT = pa.dictionary(pa.int32(), pa.string())
PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
"""At most 18 digits, so that it fits 64 bits."""
MAX_LINE = 1 << 20
"""Bytes of a line of a text file: the block in which it is read."""


def read_table(path: str | Path, names: ColumnNames = BY_NAME, roles: Iterable[str] = ALIASES) -> Any:
    """Read the needed columns of a table.

    Args:
        path: a .csv, .tsv, .parquet or .inter file.
        names: column names given by hand.
        roles: which of user, item, timestamp and rating to read, where present; others are skipped.

    Returns:
        A `pyarrow.Table`.

    Raises:
        DataError: the file is missing, empty, not UTF-8, ragged or unreadable, or lacks a column.
    """
    path = Path(path).expanduser()
    check_file(path)
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        found = f"the suffix '{path.suffix}'" if path.suffix else "no suffix"
        raise DataError(
            f"Own data should be a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file. Found {found}: {path}. "
            f"Convert it, or hand a data frame to Interactions.from_frame."
        )
    if kind == ".parquet":
        return read_parquet(path, names, roles)
    delimiter = DELIMITERS[kind]
    _check_first_line(path, delimiter)
    chosen = choose_columns(_header(path, delimiter), names, str(path))
    wanted = {role: name for role, name in chosen.items() if name is not None and role in roles}
    table = read_delimited(path, delimiter, _types(wanted), include=list(wanted.values()))
    for role in ("user", "item"):
        position = table.column_names.index(wanted[role])
        ids = _plain_ids(table.column(position), f"column '{wanted[role]}' of {path}")
        table = table.set_column(position, wanted[role], ids)
    return table


def read_delimited(
    path: Path,
    delimiter: str,
    types: Mapping[str, Any],
    *,
    header: list[str] | None = None,
    include: list[str] | None = None,
) -> Any:
    """Read a delimited text file with a header line, or without one if `header` names its columns."""
    read = pa_csv.ReadOptions(column_names=header)
    options = {
        "parse_options": pa_csv.ParseOptions(delimiter=delimiter),
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
        raise DataError(_explain(path, reason)) from error


def check_file(path: Path) -> None:
    """Check that there is a file with something in it, before it is opened: a pipe would wait, a device never end.

    Raises:
        DataError: it is missing, no regular file, empty, or cannot be opened.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"The name of {path} should be UTF-8. Rename the file.") from error
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise DataError(f"Data should be one file. Found a {_kind(about.st_mode)}: {path}.")
        with path.open("rb") as file:
            start = file.read(1024) if about.st_size else b""
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}. Check the path.") from error
    except (OSError, ValueError) as error:  # the latter from a name with a zero byte
        raise DataError(f"{path} should be readable. Found: {getattr(error, 'strerror', None) or error}.") from error
    if not start.removeprefix(b"\xef\xbb\xbf").strip():
        raise DataError(f"{path} should hold interactions. Found an empty file.")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} should be UTF-8. Found UTF-16. Save it as UTF-8.")


def _kind(mode: int) -> str:
    """What is there instead of a file."""
    kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


def _check_first_line(path: Path, delimiter: str) -> None:
    with path.open("rb") as file:
        start = file.read(MAX_LINE)
        longer = bool(file.read(1))
    line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    if b"\0" in line:
        raise DataError(f"The header of {path} should be text. Found a zero byte. Is it a text file, saved as UTF-8?")
    if len(line) == MAX_LINE and longer:
        raise DataError(f"The header of {path} should have at most {MAX_LINE >> 20} MB. Found a longer line.")
    if (columns := line.count(delimiter.encode()) + 1) > MAX_COLUMNS:
        raise DataError(
            f"{path} should have at most {MAX_COLUMNS:,} columns. Found {columns:,}. "
            f"Write only the columns that are used."
        )


def _header(path: Path, delimiter: str) -> list[str]:
    try:
        with pa_csv.open_csv(path, parse_options=pa_csv.ParseOptions(delimiter=delimiter)) as reader:
            return list(reader.schema.names)
    except UnicodeDecodeError as error:
        raise DataError(_explain(path, error)) from error
    except pa.ArrowInvalid:  # the full read names the fault and its row
        return list(read_delimited(path, delimiter, {}).column_names)


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


def _explain(path: Path, error: Exception) -> str:
    """One sentence from what Arrow says."""
    text = _first_line(error)
    if isinstance(error, UnicodeDecodeError) or "UTF8" in text:
        return f"{path} should be UTF-8. Found other bytes. Save it as UTF-8."
    if ragged := re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", text):
        row, expected, got = ragged.groups()
        return (
            f"Each row of {path} should have {expected} columns. Found {got} in row {row or '?'}. "
            f"Correct that row or the separator."
        )
    if value := re.search(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+): (.+)", text):
        column, row, kind, found = value.groups()
        return f"Column {int(column) + 1} of {path} should hold {kind} values. Found in row {row}: {found}."
    if "straddling" in text:
        return (
            f"Each line of {path} should have at most {MAX_LINE >> 20} MB. Found a longer one. "
            f"Is a quote opened and not closed?"
        )
    if missing := re.search(r"Column '(.+)' in include_columns does not exist", text):
        return f"{path} should have a column '{missing[1]}'. Found none. Is it the right file?"
    if "Empty CSV" in text:
        return f"{path} should hold a header and interactions. Found no rows."
    return f"{path} cannot be read: {text}."


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(". ")
