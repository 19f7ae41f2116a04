"""JSON lines: one object per row, as logs and exports have it. The first object names the columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json

from fedrecgel.data.columns import ColumnNames, choose_columns
from fedrecgel.data.parquet import MAX_COLUMNS
from fedrecgel.errors import DataError

MAX_LINE = 1 << 20
"""Bytes of a line: the block in which it is read."""
KINDS: dict[type, Any] = {int: pa.int64(), float: pa.float64(), str: pa.string()}


def read_json_lines(path: Path, names: ColumnNames, roles: Iterable[str], where: str) -> Any:
    """Read the columns of these roles; a value keeps the type that it has in the first object.

    Raises:
        DataError: it is no such file, lacks a column, or a column holds values of several types.
    """
    first = _first_object(path, where)
    chosen = choose_columns(list(first), names, where)
    wanted = {role: name for role, name in chosen.items() if name is not None and role in roles}
    schema = pa.schema([(name, _kind(role, first[name], f"'{name}' of {where}")) for role, name in wanted.items()])
    try:
        table = pa_json.read_json(
            path,
            read_options=pa_json.ReadOptions(block_size=MAX_LINE),
            parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        ).select(list(wanted.values()))
        table.validate(full=True)  # text is UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(_explain(where, error)) from error
    return table


def _kind(role: str, value: object, what: str) -> Any:
    """The type of a column; a later rating may be a fraction, a first title missing."""
    if role == "rating":
        return pa.float64()
    if value is None:
        return pa.string()
    if type(value) not in KINDS:
        raise DataError(f"Column {what} should hold numbers or text. Found {json.dumps(value)[:40]}.")
    return KINDS[type(value)]


def _first_object(path: Path, where: str) -> dict[str, Any]:
    with path.open("rb") as file:
        start = file.read(MAX_LINE).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where} should hold one JSON object per line. The first line is none: "
            f"{line[:40].decode(errors='replace')!r}."
        ) from error
    if not isinstance(found, dict):
        raise DataError(f"{where} should hold one JSON object per line. The first line is a {type(found).__name__}.")
    if len(found) > MAX_COLUMNS:
        raise DataError(f"{where} should have at most {MAX_COLUMNS:,} columns. Found {len(found):,}.")
    return found


def _explain(where: str, error: Exception) -> str:
    """One sentence from what Arrow says."""
    text = str(error).partition("\n")[0].rstrip(". ")
    if isinstance(error, UnicodeDecodeError) or "UTF8" in text:
        return f"{where} should be UTF-8. Found other bytes. Save it as UTF-8."
    if changed := re.search(r"Column\(/?(.*)\) changed from (\w+) to (\w+) in row (\d+)", text):
        column, before, after, row = changed.groups()
        what = f"'{column}' of {where} should be a {before} in every line" if column else f"{where} should hold objects"
        return f"{what}. Found a {after} in row {int(row) + 1} of a block. Write one type."
    if "straddling" in text:
        return f"Each line of {where} should have at most {MAX_LINE >> 20} MB. Found a longer one."
    return f"{where} should hold one JSON object per line. Found something else: {text}."
