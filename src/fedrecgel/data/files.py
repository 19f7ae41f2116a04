"""Own data as Arrow tables: text of several layouts, JSON lines, Parquet and RecBole files, packed or not.

Only the columns that are needed are read. What the name and the first lines leave open is assumed, and said.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fedrecgel.data.columns import ALIASES, BY_NAME, ColumnNames
from fedrecgel.data.delimited import check_first_line, read_laid_out
from fedrecgel.data.json_lines import read_json_lines
from fedrecgel.data.packed import PACKERS, inner_name, unpacked
from fedrecgel.data.parquet import read_parquet
from fedrecgel.data.sniff import find_layout
from fedrecgel.errors import ConfigError, DataError

SEPARATORS = {".csv": ",", ".tsv": "\t", ".inter": "\t", ".txt": "\t", ".dat": "\t", ".data": "\t"}
"""What usually parts columns of text files."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (*SEPARATORS, *JSON_LINES, ".parquet")


def read_table(
    path: str | Path,
    names: ColumnNames = BY_NAME,
    roles: Iterable[str] = ALIASES,
    *,
    columns: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Any:
    """Read the needed columns of a table.

    Args:
        path: a file with one of SUFFIXES, or with .gz or .zst after it.
        names: column names given by hand.
        roles: which of user, item, timestamp, rating and title to read, where present; others are skipped.
        columns: names by position, for text files without a header.
        say: told in a sentence what was assumed.

    Returns:
        A `pyarrow.Table`.

    Raises:
        ConfigError: columns are named by position in a file that has names.
        DataError: the file is missing, empty, not UTF-8, ragged, damaged or too large, or lacks a column.
    """
    path = Path(path).expanduser()
    check_file(path)
    kind = Path(inner_name(path)).suffix.lower()
    if kind not in SUFFIXES:
        found = f"the suffix '{path.suffix}'" if path.suffix else "no suffix"
        raise DataError(
            f"Own data should be a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file, or one of these with "
            f"{' or '.join(PACKERS)} after it. Found {found}: {path}. Convert it, or load a data frame."
        )
    if columns is not None and kind not in SEPARATORS:
        raise ConfigError(f"--columns names columns of text files by position. Found {path}, which has names.")
    with unpacked(path, text=kind != ".parquet") as plain:
        if kind == ".parquet":
            return read_parquet(plain, names, roles, str(path))
        if kind in JSON_LINES:
            return read_json_lines(plain, names, roles, str(path))
        check_first_line(plain, SEPARATORS[kind], str(path))
        layout = find_layout(plain, SEPARATORS[kind], columns, names, str(path), say)
        return read_laid_out(plain, layout, names, roles, str(path))


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
