"""Own data: CSV, TSV, Parquet and RecBole `.inter` files, and delimited raw files, as Arrow tables.

Only the columns that are needed are read. Ids in text files become integers when every one of a column is
written as a plain integer; one id such as `007` or `A1` keeps the whole column as text, so nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from fedrecgel.data.columns import ALIASES, BY_NAME, ColumnNames, choose_columns
from fedrecgel.errors import DataError

DELIMITERS = {".csv": ",", ".tsv": "\t", ".inter": "\t"}
SUFFIXES = (".csv", ".tsv", ".parquet", ".inter")
ID_TEXT = pa.dictionary(pa.int32(), pa.string())
PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
"""At most 18 digits, so that it fits 64 bits."""


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
        return _read_parquet(path, names, roles)
    delimiter = DELIMITERS[kind]
    chosen = choose_columns(_header(path, delimiter), names, str(path))
    wanted = {role: name for role, name in chosen.items() if name is not None and role in roles}
    table = read_delimited(path, delimiter, _types(wanted), include=list(wanted.values()))
    for role in ("user", "item"):
        position = table.column_names.index(wanted[role])
        table = table.set_column(position, wanted[role], _plain_ids(table.column(position)))
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
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError) as error:
        reason = error
        if "Expected" in str(error):  # only the serial reader knows the number of the row
            read.use_threads = False
            try:
                pa_csv.read_csv(path, read_options=read, **options)
            except pa.ArrowInvalid as again:
                reason = again
        raise DataError(_explain(path, reason)) from error


def check_file(path: Path) -> None:
    """Check that there is a file with something in it.

    Raises:
        DataError: it is missing, a directory, empty, or cannot be opened.
    """
    if path.is_dir():
        raise DataError(f"Data should be one file. Found a directory: {path}.")
    try:
        with path.open("rb") as file:
            start = file.read(1024)
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}. Check the path.") from error
    except OSError as error:
        raise DataError(f"{path} should be readable. Found: {error.strerror}.") from error
    if not start.strip():
        raise DataError(f"{path} should hold interactions. Found an empty file.")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} should be UTF-8. Found UTF-16. Save it as UTF-8.")


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
    if wanted.get("timestamp", "").endswith(":float"):
        types[wanted["timestamp"]] = pa.float64()
    return types


def _plain_ids(column: Any) -> Any:
    """Integers if every id is written as one, else the text."""
    ids = column.combine_chunks()
    ids = ids if isinstance(ids, pa.DictionaryArray) else pa.chunked_array([], ID_TEXT).combine_chunks()
    if not pc.all(pc.match_substring_regex(ids.dictionary, PLAIN_INTEGER)).as_py():
        return ids
    return ids.dictionary.cast(pa.int64()).take(ids.indices)


def _read_parquet(path: Path, names: ColumnNames, roles: Iterable[str]) -> Any:
    try:
        chosen = choose_columns(pq.read_schema(path).names, names, str(path))
        wanted = [name for role, name in chosen.items() if name is not None and role in roles]
        return pq.ParquetFile(path).read(columns=wanted)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} should be a Parquet file. Found something unreadable: {_first_line(error)}. Write it again."
        ) from error


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
    if missing := re.search(r"Column '(.+)' in include_columns does not exist", text):
        return f"{path} should have a column '{missing[1]}'. Found none. Is it the right file?"
    if "Empty CSV" in text:
        return f"{path} should hold a header and interactions. Found no rows."
    return f"{path} cannot be read: {text}."


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(". ")
