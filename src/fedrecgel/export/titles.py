"""What people call the items of a run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from fedrecgel.data.delimited import read_delimited
from fedrecgel.data.files import SEPARATORS, check_file
from fedrecgel.errors import ConfigError, DataError
from fedrecgel.runs.result import Result


def titles_for(run: Result, file: str | None) -> list[str] | None:
    """A title for each item of a run, its id where the file has none; None without a file.

    Raises:
        DataError: the file cannot be read, or lacks a column.
        ConfigError: it has no title for any item of the run.
    """
    if file is None:
        return None
    path = Path(file).expanduser()
    check_file(path)
    if path.suffix not in (".csv", ".tsv"):
        raise DataError(f"--titles should be a .csv or .tsv file with columns item and title. Found '{path}'.")
    kinds = {"item": pa.string(), "title": pa.string()}
    table = read_delimited(path, SEPARATORS[path.suffix], kinds, include=list(kinds))
    pairs = zip(table.column("item").to_pylist(), table.column("title").to_pylist(), strict=True)
    known = {item: " ".join(title.split()) for item, title in pairs if title and title.strip()}
    if not any(str(item) in known for item in run.item_ids):
        raise ConfigError(
            f"'{path}' should have titles of the run's items. Of its {len(run.item_ids):,} items, such as "
            f"{run.item_ids[0]!r}, it names none."
        )
    return [known.get(str(item), str(item)) for item in run.item_ids]
