"""results.jsonl: an append-only line for every run of an experiment, finished or failed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from fedrecgel.errors import StorageError
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.seal import Summary
from fedrecgel.runs.settings import CHANGE_NO_NUMBER, settings_fingerprint
from fedrecgel.storage import UNREADABLE, read_bytes, read_json
from fedrecgel.studies.fingerprints import complete_settings
from fedrecgel.theory.generalisation import Generalisation

GENERALISATION = "generalisation.json"
"""Beside the run's other files: losses on training and held-out examples, and the bound."""


@dataclass(frozen=True)
class Record:
    """What happened to one run."""

    status: Literal["finished", "failed"]
    fingerprint: str
    """Of the config, by the version that ran it: `fingerprints.py: config_fingerprint`."""
    folder: str
    """The run folder, relative to the experiments' folder."""
    config: dict[str, Any]
    """Every setting; once read, those of later versions, too, as far as they can be known."""
    summary: dict[str, Any] | None
    """As in summary.json: seed, commit, versions, metrics; None for a failed run."""
    generalisation: dict[str, Any] | None = None
    error: str | None = None
    trained: int = 0
    """Clients trained, summed over rounds; methods choose their own cohorts."""

    def traffic(self, way: str) -> float:
        """Bytes a client sends ("up") or receives ("down") each time it trains."""
        return float(self.run["bytes"][way]) / max(1, self.trained)

    @property
    def run(self) -> dict[str, Any]:
        """The summary of a finished run."""
        if self.summary is None:
            raise ValueError(f"{self.folder} did not finish")
        return self.summary


def is_complete(folder: Path) -> bool:
    """Whether a run folder has everything that a record is made of."""
    return RunFolder(folder).summary.exists() and (folder / GENERALISATION).exists()


def finished_record(root: Path, folder: str, fingerprint: str, config: dict[str, Any] | None = None) -> Record:
    """The record of a run folder that is complete, with this config or its own, whichever version wrote that."""
    generalisation = _generalisation(root / folder / GENERALISATION)
    run = RunFolder(root / folder).read_finished()
    trained = sum(line.get("clients", 0) for line in run.history)
    known = config or complete_settings(run.settings) or run.settings
    return Record("finished", fingerprint, folder, known, run.summary, generalisation, trained=trained)


def _generalisation(path: Path) -> dict[str, Any] | None:
    """The losses of a run; None where there are none to compare."""
    if not path.exists() or path.read_bytes().strip() == b"null":
        return None
    return asdict(read_json(path, Generalisation))


@dataclass(frozen=True)
class ResultsLog:
    """The file; lines are only ever added, and the last one of a fingerprint counts."""

    root: Path
    """The experiments' folder."""

    @property
    def path(self) -> Path:
        """results.jsonl."""
        return self.root / "results.jsonl"

    def append(self, record: Record) -> None:
        """Add a line and put it on disk."""
        line = json.dumps(vars(record), sort_keys=True) + "\n"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.tell() and not self._ends_in_newline():
                    file.write(b"\n")  # a line cut off by a crash must not swallow this one
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"'{self.path}' could not be written: {error}. Finished runs are kept.") from error

    def _ends_in_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"

    def read(self) -> dict[str, Record]:
        """The latest record of every fingerprint; a line cut off by a crash is left out.

        Fingerprints and settings are those of this version: one that knows more settings has others for the same runs.

        Raises:
            StorageError: a complete line is no record.
        """
        if not self.path.exists():
            return {}
        records: dict[str, Record] = {}
        try:
            for line in read_bytes(self.path).split(b"\n"):
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                record = msgspec.convert(found, Record)
                if record.status == "finished":
                    msgspec.convert(record.summary, Summary)
                complete = complete_settings(record.config)
                if complete is None:
                    records[record.fingerprint] = record
                else:
                    mark = settings_fingerprint(complete, CHANGE_NO_NUMBER)
                    records[mark] = replace(record, config=complete)
        except UNREADABLE as error:
            raise StorageError(f"'{self.path}' cannot be read: {error}. Restore it, or delete the line.") from error
        return records
