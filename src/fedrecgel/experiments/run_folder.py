"""The run folder: who owns it, what is in it, in which order it is written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from fedrecgel.engine.checkpoint import TEMPORARY, write_atomically
from fedrecgel.errors import RunFolderError, StorageError

Settings = Mapping[str, Mapping[str, Any]]
"""Sections of a config, as in the TOML file."""

FREE_TO_CHANGE = {("run", "rounds"), ("checkpoint", "every"), ("data", "dir"), ("local", "workers")}
"""Settings a resumed run may change: they do not alter the rounds already finished."""


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def run_fingerprint(settings: Settings, split: str) -> str:
    """What a checkpoint must match: every setting that shapes a round, and the split itself."""
    kept = {
        section: {key: value for key, value in values.items() if (section, key) not in FREE_TO_CHANGE}
        for section, values in settings.items()
    }
    return sha256(json.dumps([kept, split], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run, and the rules of writing them."""

    path: Path

    @property
    def config(self) -> Path:
        """Every setting."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """One JSON line per round."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """Written last."""
        return self.path / "summary.json"

    @property
    def server(self) -> Path:
        """Shared tensors."""
        return self.path / "server.safetensors"

    @property
    def clients(self) -> Path:
        """Private tensors."""
        return self.path / "clients.safetensors"

    @property
    def checkpoint(self) -> Path:
        """What resuming needs."""
        return self.path / "checkpoint" / "state.safetensors"

    def claim(self, settings: Settings, *, resume: bool) -> Literal["new", "resumed", "finished"]:
        """Make the folder ours, or say why it is not; nothing in it is changed.

        Raises:
            RunFolderError: it holds something else, another run, or an interrupted run and resume is False.
        """
        if self.path.is_file():
            raise RunFolderError(f"--out should be a folder. '{self.path}' is a file.")
        if not self.config.exists():
            if self.path.exists() and any(entry.suffix != TEMPORARY for entry in self.path.iterdir()):
                raise RunFolderError(f"'{self.path}' is not empty and is no run folder. Choose another --out.")
            if resume:
                raise RunFolderError(f"There is no run to resume in '{self.path}'. Leave --resume out to start one.")
            return "new"
        self._check_same(settings)
        asked = settings["run"]["rounds"]
        done = self.read_summary()["rounds"] if self.summary.exists() else 0
        if done == asked:
            return "finished"
        if done > asked:
            raise RunFolderError(
                f"'{self.path}' holds this run with {done} rounds, more than the {asked} asked for. "
                f"Choose another --out."
            )
        if not resume:
            raise RunFolderError(
                f"'{self.path}' holds this run up to round {len(self.read_history())}. "
                f"Continue it with --resume, or choose another --out."
            )
        return "resumed"

    def _check_same(self, settings: Settings) -> None:
        try:
            found = tomllib.loads(self.config.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RunFolderError(f"'{self.config}' cannot be read: {error}. Choose another --out.") from error
        for section in sorted({*found, *settings}):
            ours, theirs = settings.get(section, {}), found.get(section, {})
            for key in sorted({*ours, *theirs}, key=lambda key: (key != "name", key)):  # the name says most
                if (section, key) not in FREE_TO_CHANGE and ours.get(key) != theirs.get(key):
                    raise RunFolderError(
                        f"'{self.path}' belongs to another run: there {section}.{key} = {theirs.get(key)!r}, "
                        f"here {ours.get(key)!r}. Choose another --out."
                    )

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a round to metrics.jsonl."""
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise StorageError(
                f"'{self.metrics}' could not be written: {error}. The last checkpoint is untouched; "
                f"make room, then continue with --resume."
            ) from error

    def read_history(self) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl; a line cut off by a crash is left out."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text(encoding="utf-8").split("\n")
        try:
            return [json.loads(line) for line in lines[:-1]]
        except ValueError as error:
            raise StorageError(f"'{self.metrics}' cannot be read: {error}.") from error

    def rewind(self, rounds: int) -> list[dict[str, Any]]:
        """Forget lines after this many rounds: they will be repeated, with the same numbers."""
        history = [line for line in self.read_history() if line["round"] <= rounds]
        write_text(self.metrics, "".join(json.dumps(line) + "\n" for line in history))
        return history

    def read_summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        try:
            summary = json.loads(self.summary.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RunFolderError(
                f"'{self.path}' holds no finished run: summary.json is missing. Finish it with --resume."
            ) from error
        except (OSError, ValueError) as error:
            raise StorageError(f"'{self.summary}' cannot be read: {error}.") from error
        if not isinstance(summary, dict) or not {"method", "rounds", "protocol", "metrics"} <= summary.keys():
            raise RunFolderError(f"'{self.summary}' should be the summary of a run. Found something else.")
        return summary

    def check_data(self, fingerprint: str) -> None:
        """Refuse a finished run on other data that had the same settings."""
        if self.read_summary()["protocol"]["fingerprint"] != fingerprint:
            raise RunFolderError(f"'{self.path}' holds this run on other data. Choose another --out.")
