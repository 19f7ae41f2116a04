"""results.jsonl: an append-only line for every run of an experiment, finished or failed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedrecgel.errors import StorageError
from fedrecgel.runs.folder import RunFolder

GENERALISATION = "generalisation.json"
"""Beside the run's other files: losses on training and held-out examples, and the bound."""


@dataclass(frozen=True)
class Record:
    """What happened to one run."""

    status: Literal["finished", "failed"]
    fingerprint: str
    """Of the config: `plan.py: config_fingerprint`."""
    folder: str
    """The run folder, relative to the experiments' folder."""
    config: dict[str, Any]
    summary: dict[str, Any] | None
    """As in summary.json: seed, commit, versions, metrics; None for a failed run."""
    generalisation: dict[str, Any] | None = None
    error: str | None = None
    trained: int = 0
    """Clients trained, summed over rounds; methods choose their own cohorts."""

    def traffic(self, way: str) -> float:
        """Bytes a client sends ("up") or receives ("down") each time it trains."""
        return float(self.run["bytes"][way]) / self.trained

    @property
    def run(self) -> dict[str, Any]:
        """The summary of a finished run."""
        if self.summary is None:
            raise ValueError(f"{self.folder} did not finish")
        return self.summary


def finished_record(root: Path, folder: str, fingerprint: str, config: dict[str, Any]) -> Record:
    """The record of a run folder that is complete."""
    extra = root / folder / GENERALISATION
    generalisation = json.loads(extra.read_text(encoding="utf-8")) if extra.exists() else None
    run = RunFolder(root / folder)
    trained = sum(int(line["clients"]) for line in run.read_history())
    return Record("finished", fingerprint, folder, config, run.read_summary(), generalisation, trained=trained)


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
        """The latest record of every fingerprint; a line cut off by a crash is left out."""
        if not self.path.exists():
            return {}
        records: dict[str, Record] = {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                record = Record(**json.loads(line))
            except (ValueError, TypeError):
                continue
            records[record.fingerprint] = record
        return records
