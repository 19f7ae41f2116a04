"""The record of a search: one line per trial, and the folder it stands in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import tomli_w

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.runs.config import Config
from fedrecgel.runs.settings import FREE_TO_CHANGE, difference, read_settings
from fedrecgel.search.space import Space, Value
from fedrecgel.storage import TEMPORARY, UNREADABLE, lock_folder, read_bytes, write_text

State = Literal["finished", "stopped", "failed"]
"""Ran to the end; stopped early as hopeless; diverged or was refused."""
Curve = list[tuple[int, float]]
"""(round, value) at every evaluated round."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one set of values reached on the validation items; there is no test number to record."""

    number: int
    parameters: dict[str, Value]
    """By `section.key`."""
    state: State
    validation: dict[str, float] | None = None
    """Metrics of the best round; None for a failed trial."""
    best_round: int | None = None
    curve: Curve = field(default_factory=list)
    """The metric that is searched for."""
    seconds: float = 0.0
    reason: str | None = None
    """Why it failed."""
    split: str
    """Fingerprint of the data."""
    commit: str | None
    jobs: int = 1
    """How many ran at the same time: trial n knew of trials 0 … n - jobs."""

    @property
    def score(self) -> float:
        """The best value it reached."""
        return max(value for _, value in self.curve)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The finished trial with the highest score, the earliest of equals; None if there is none."""
    finished = [trial for trial in trials if trial.state == "finished"]
    return max(finished, key=lambda trial: trial.score, default=None)


@dataclass(frozen=True)
class SearchFolder:
    """Paths of one search, and the rules of writing them."""

    path: Path

    @property
    def search(self) -> Path:
        """Every setting and the space: `fedrecgel tune` takes it."""
        return self.path / "search.toml"

    @property
    def trials(self) -> Path:
        """One JSON line per trial."""
        return self.path / "trials.jsonl"

    @property
    def best(self) -> Path:
        """The config of the best trial so far: `fedrecgel train` takes it."""
        return self.path / "best.toml"

    def claim(self, config: Config, space: Space) -> list[Trial]:
        """Make the folder ours, or say why it is not; returns the trials done already.

        Raises:
            RunFolderError: it holds something else or another search.
        """
        if self.path.is_file():
            raise RunFolderError(f"--out should be a folder. '{self.path}' is a file.")
        if not self.search.exists():
            if self.path.exists() and any(self._foreign(entry) for entry in self.path.iterdir()):
                raise RunFolderError(f"'{self.path}' is not empty and holds no search. Choose another --out.")
            return []
        self._check_same(_settings(config, space))
        return self._read()

    def _foreign(self, entry: Path) -> bool:
        """Whether something is here that a search killed at its very start would not leave."""
        return entry.suffix != TEMPORARY and entry != self._lock

    @property
    def _lock(self) -> Path:
        return self.path / ".lock"

    @contextmanager
    def open(self, config: Config, space: Space) -> Iterator[list[Trial]]:
        """The trials done already, while no other process may add any."""
        self.claim(config, space)
        with lock_folder(self.path, self._lock):
            done = self.claim(config, space)  # another process may have been here before the lock
            write_text(self.search, tomli_w.dumps(_settings(config, space)))
            write_text(self.trials, "".join(_line(trial) for trial in done))  # without a line that a crash cut off
            yield done

    def _check_same(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        if changed := difference(settings, read_settings(self.search), FREE_TO_CHANGE - {("run", "rounds")}):
            key, theirs, ours = changed
            raise RunFolderError(
                f"'{self.path}' belongs to another search: there {key} = {theirs!r}, here {ours!r}. "
                f"Choose another --out."
            )

    def _read(self) -> list[Trial]:
        """All complete lines; one cut off by a crash is left out."""
        if not self.trials.exists():
            return []
        try:
            lines = read_bytes(self.trials).split(b"\n")[:-1]
            trials = [msgspec.convert(json.loads(line), Trial) for line in lines]
            if any(trial.state == "finished" and not trial.curve for trial in trials):
                raise ValueError("a finished trial has no value")
        except UNREADABLE as error:
            raise StorageError(f"'{self.trials}' cannot be read: {error}. Choose another --out.") from error
        if [trial.number for trial in trials] != list(range(len(trials))):
            raise StorageError(f"'{self.trials}' should count trials from 0. Some are missing; choose another --out.")
        return trials

    def append(self, trial: Trial) -> None:
        """Add a trial."""
        try:
            with self.trials.open("a", encoding="utf-8") as file:
                file.write(_line(trial))
        except OSError as error:
            raise StorageError(
                f"'{self.trials}' could not be written: {error}. Make room, then give the same command to go on."
            ) from error


def _settings(config: Config, space: Space) -> dict[str, dict[str, Any]]:
    return {**config.to_dict(), "search": {key: entry.written() for key, entry in space.items()}}


def _line(trial: Trial) -> str:
    return json.dumps(asdict(trial)) + "\n"
