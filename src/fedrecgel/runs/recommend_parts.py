"""`FILE.parts`: the finished parts of a table for everybody, so that a command that was stopped goes on behind them.

A folder beside the file holds `about.json`, which says whose table it is, and one Parquet file per part. Every file is
written atomically and the folder goes when the table is complete, so a kill at any moment loses at most one part.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa
import torch
from pyarrow import parquet

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.runs.everyone import Everyone, check_table_path, write_tables
from fedrecgel.runs.settings import CHANGE_NO_NUMBER, settings_fingerprint
from fedrecgel.storage import lock_folder, write_atomically, write_text


@runtime_checkable
class Watcher(Protocol):
    """Hears how far the table is."""

    def begin(self, done: int) -> None:
        """So many users were done before."""

    def advance(self, users: int) -> None:
        """So many more are done."""


def write_in_parts(everyone: Everyone, path: Path, progress: Watcher) -> int:
    """Write the table of `write_recommendations`, going on where an earlier call was stopped; returns its rows.

    Args:
        everyone: what to write.
        path: a .parquet or .csv file; it appears when it is complete, and is the same however often it was stopped.
        progress: hears how many users are done, after every block of users.

    Raises:
        ConfigError: the name does not end with .parquet or .csv.
        RunFolderError: another process is writing this file, or its parts belong to another run or other options.
        StorageError: it could not be written; finished parts stay.
    """
    folder = parts_folder(check_table_path(path))
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(folder, _lock(folder)))
        except RunFolderError as error:
            raise RunFolderError(f"Another process is writing to '{folder}'. Choose another -o.") from error
        about = folder / "about.json"
        _claim(about, _fingerprint(everyone))
        parts = {folder / f"{number:06}.parquet": users for number, users in enumerate(everyone.parts)}
        missing = {file: users for file, users in parts.items() if not file.exists()}
        progress.begin(len(everyone.result.user_ids) - sum(map(len, missing.values())))
        for file, users in missing.items():
            table = everyone.table(users, progress.advance)
            write_atomically(file, partial(parquet.write_table, table, write_page_checksum=True))
        n_rows = write_tables(path, everyone.schema, (_read(file, everyone.schema) for file in parts))
        for file in (*parts, about, _lock(folder)):  # these and nothing else: who knows what else was put there
            file.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
    return n_rows


def parts_folder(path: Path) -> Path:
    """Where the parts of this table are until it is complete."""
    return path.with_name(f"{path.name}.parts")


def _lock(folder: Path) -> Path:
    return folder / ".lock"


def _fingerprint(everyone: Everyone) -> str:
    """What parts must have in common: the run, the options, and the code that scores."""
    result = everyone.result
    by = {name: version(name) for name in ("fedrecgel", "pyarrow")} | {"torch": torch.__version__}
    cut = [len(users) for users in everyone.parts]
    chosen = None if everyone.allowed is None else everyone.allowed.nonzero()[:, 0].tolist()
    what = (everyone.k, cut, chosen, result.item_titles, by, *(["because"] if everyone.because else []))
    return settings_fingerprint(result.config.to_dict(), CHANGE_NO_NUMBER, result.summary, *what)


def _claim(about: Path, fingerprint: str) -> None:
    """Make the folder ours, or say why it is not."""
    if not about.exists():
        if any(not entry.name.startswith(".") for entry in about.parent.iterdir()):
            raise RunFolderError(
                f"'{about.parent}' should hold unfinished parts. Found something else; choose another -o."
            )
        write_text(about, json.dumps({"fingerprint": fingerprint}) + "\n")
        return
    try:
        found = json.loads(about.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if found != {"fingerprint": fingerprint}:
        raise RunFolderError(
            f"'{about.parent}' holds unfinished parts of another run, of other options or of another version. "
            f"Finish them with that command, delete the folder, or choose another -o."
        )


def _read(file: Path, schema: pa.Schema) -> pa.Table:
    try:
        with file.open("rb") as opened:
            table = parquet.ParquetFile(opened, page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"'{file}' cannot be read: {error}. Delete it, then run the same command again.") from error
    if table.schema != schema:
        raise StorageError(f"'{file}' should be part of a table. Found something else; delete it, then run again.")
    return table
