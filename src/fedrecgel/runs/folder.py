"""The run folder: who owns it, what is in it, in which order it is written."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from fedrecgel.errors import FedrecgelError, RunFolderError, StorageError
from fedrecgel.storage import TEMPORARY, lock_folder, write_text

Settings = Mapping[str, Mapping[str, Any]]
"""Sections of a config, as in the TOML file."""

CHANGE_NO_NUMBER = frozenset({("checkpoint", "every"), ("data", "dir"), ("local", "workers")})
"""Settings that change no number of a run: the one list. Two runs that differ in nothing else are the same run.

`local.accelerate` and the sizes of chunks are not among them: numbers agree to rounding only.
"""
FREE_TO_CHANGE = CHANGE_NO_NUMBER | {
    ("run", "rounds"),
    ("flower", "superlink"),
    ("flower", "certificate"),
    ("flower", "wait_seconds"),
    ("flower", "round_seconds"),
    ("flower", "min_answers"),
    ("flower", "repeats"),
    ("flower", "hosts"),
    ("flower", "lost_state"),
}
"""Settings a resumed run may change: they do not alter the rounds already finished."""


def settings_fingerprint(settings: Settings, free: Set[tuple[str, str]], *more: object) -> str:
    """SHA-256 of all settings but the free ones, and of what else there is to tell apart."""
    kept = {
        section: {key: value for key, value in values.items() if (section, key) not in free}
        for section, values in settings.items()
    }
    content = [kept, *more] if more else kept
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def run_fingerprint(settings: Settings, split: str, *, accelerated: bool = False) -> str:
    """What a checkpoint must match: every setting that shapes a round, the split itself, and the path taken."""
    return settings_fingerprint(settings, FREE_TO_CHANGE, split, accelerated)


def difference(
    ours: Settings, theirs: Settings, free: Set[tuple[str, str]] = FREE_TO_CHANGE
) -> tuple[str, Any, Any] | None:
    """The first setting that is not the same and should be: its key, their value, our value."""
    for section in sorted({*theirs, *ours}):
        mine, other = ours.get(section, {}), theirs.get(section, {})
        for key in sorted({*mine, *other}, key=lambda key: (key != "name", key)):  # the name says most
            if (section, key) not in free and mine.get(key) != other.get(key):
                return f"{section}.{key}", other.get(key), mine.get(key)
    return None


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
    def ranks(self) -> Path:
        """Every user's rank at the end, for paired tests."""
        return self.path / "ranks.safetensors"

    @property
    def checkpoint(self) -> Path:
        """What resuming needs."""
        return self.path / "checkpoint" / "state.safetensors"

    def best(self, round: int) -> Path:
        """The model of the selected round, until the run ends."""
        return self.path / "checkpoint" / f"best-{round}.safetensors"

    def forget_other_bests(self, round: int | None) -> None:
        """Delete snapshots that the checkpoint no longer names."""
        for path in self.checkpoint.parent.glob("best-*.safetensors"):
            if round is None or path != self.best(round):
                path.unlink(missing_ok=True)

    def claim(self, settings: Settings, *, resume: bool) -> Literal["new", "resumed", "finished"]:
        """Make the folder ours, or say why it is not; nothing in it is changed.

        Raises:
            RunFolderError: it holds something else, another run, or an interrupted run and resume is False.
        """
        if self.path.is_file():
            raise RunFolderError(f"--out should be a folder. '{self.path}' is a file.")
        if not self.config.exists():
            if self.path.exists() and any(self._foreign(entry) for entry in self.path.iterdir()):
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

    def claim_unfinished(self, settings: Settings, *, resume: bool) -> None:
        """As `claim`, for a run that goes on.

        Raises:
            RunFolderError: it cannot be claimed, or is finished.
        """
        if self.claim(settings, resume=resume) == "finished":
            raise RunFolderError(f"'{self.path}' holds this run, finished. Open it, or choose another --out.")

    def _foreign(self, entry: Path) -> bool:
        """Whether something is here that a run killed at its very start would not leave."""
        return entry.suffix != TEMPORARY and entry != self.checkpoint.parent

    def _check_same(self, settings: Settings) -> None:
        try:
            found: Settings = tomllib.loads(self.config.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RunFolderError(f"'{self.config}' cannot be read: {error}. Choose another --out.") from error
        with suppress(FedrecgelError):  # settings that an earlier version did not have are at their defaults there
            found = self._complete(found)
        if changed := difference(settings, found):
            key, theirs, ours = changed
            raise RunFolderError(
                f"'{self.path}' belongs to another run: there {key} = {theirs!r}, here {ours!r}. Choose another --out."
            )

    def _complete(self, settings: Settings) -> Settings:
        """The same settings as this version writes them."""
        from fedrecgel.runs.config import from_dict  # which imports this module

        return from_dict(settings).to_dict()

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

    def sync_metrics(self) -> None:
        """Put metrics.jsonl on disk before a checkpoint that relies on it."""
        with self.metrics.open("rb") as file:
            os.fsync(file.fileno())

    def history_until(self, rounds: int) -> list[dict[str, Any]]:
        """The first so many rounds; later ones will be repeated, with the same numbers."""
        history = self.read_history()[:rounds]
        if [line.get("round") for line in history] != list(range(1, rounds + 1)):
            raise StorageError(
                f"'{self.metrics}' should have a line for each of {rounds} rounds. Some are missing; "
                f"restore it from a copy, or start again in another folder."
            )
        return history

    def reopen(self, config: str, history: Sequence[Mapping[str, Any]]) -> None:
        """Make a run unfinished again, with this config and these rounds."""
        self.summary.unlink(missing_ok=True)  # first: a folder with a summary is complete
        write_text(self.config, config)
        write_text(self.metrics, "".join(json.dumps(line) + "\n" for line in history))

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes out while a run writes."""
        return lock_folder(self.path, self.checkpoint.parent / ".lock")

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
