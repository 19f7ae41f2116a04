"""The run folder: who owns it, what is in it, in which order it is written."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from fedrecgel.errors import FedrecgelError, RunFolderError, StorageError
from fedrecgel.runs.seal import FORMAT, checksum, history_text, read_line, sealed, unseal
from fedrecgel.runs.settings import Settings, difference, read_settings, settings_mark
from fedrecgel.storage import TEMPORARY, UNREADABLE, lock_folder, read_bytes, remove, write_text


class Finished(NamedTuple):
    """The text files of a finished run."""

    summary: dict[str, Any]
    history: list[dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    """What config.toml holds."""
    files: Mapping[str, str] | None
    """Checksums of all files; None for a run of an earlier version."""


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

    @property
    def rewritten(self) -> Path:
        """Where the files of a run that is changed are until all of them are written."""
        return self.path / ".rewritten"

    def best(self, round: int) -> Path:
        """The model of the selected round, until the run ends."""
        return self.path / "checkpoint" / f"best-{round}.safetensors"

    def forget_other_bests(self, *rounds: int | None) -> None:
        """Delete snapshots but those of these rounds: the checkpoint's best and the best so far."""
        kept = {self.best(number) for number in rounds if number is not None}
        for path in self.checkpoint.parent.glob("best-*.safetensors"):
            if path not in kept:
                remove(path)

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
        found: Settings = read_settings(self.config)
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

    def read_history(self, sha256: str | None = None) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl; a line cut off by a crash is left out.

        Args:
            sha256: the checksum its text should have.
        """
        if sha256 is None and not self.metrics.exists():
            return []
        try:
            text = read_bytes(self.metrics)
            if sha256 not in (None, checksum(text)):
                raise ValueError("its checksum is another, so it was changed after the run")
            return [read_line(line) for line in text.split(b"\n")[:-1]]
        except UNREADABLE as error:
            raise StorageError(f"'{self.metrics}' cannot be read: {error}. Restore it from a copy.") from error

    def reopen(self, config: str, history: Sequence[Mapping[str, Any]]) -> None:
        """Make a run unfinished again, with this config and these rounds."""
        remove(self.summary)  # first: a folder with a summary is complete
        write_text(self.config, config)
        write_text(self.metrics, history_text(history))

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes out while a run writes."""
        return lock_folder(self.path, self.checkpoint.parent / ".lock")

    def write_summary(
        self,
        summary: Mapping[str, Any],
        settings: Settings,
        history: Sequence[Mapping[str, Any]],
        files: Mapping[str, str],
    ) -> None:
        """End a run whose tensor files, with these checksums, are written; settings are those of config.toml."""
        text = history_text(history)
        write_text(self.metrics, text)  # lines were added without waiting for the disk
        files = {self.config.name: settings_mark(settings), self.metrics.name: checksum(text.encode()), **files}
        write_text(self.summary, sealed({"format": FORMAT, **summary}, files))

    def read_summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        return self._unseal()[0]

    def _unseal(self) -> tuple[dict[str, Any], Mapping[str, str] | None]:
        if not self.summary.exists():
            raise RunFolderError(
                f"'{self.path}' holds no finished run: summary.json is missing. Finish it with --resume."
            )
        try:
            return unseal(read_bytes(self.summary))
        except msgspec.ValidationError as error:
            raise RunFolderError(f"'{self.summary}' should be the summary of a run. Found: {error}.") from error
        except UNREADABLE as error:
            raise StorageError(f"'{self.summary}' cannot be read: {error}. Restore it from a copy.") from error

    def read_finished(self) -> Finished:
        """All about a finished run but its model, checked against its seal.

        Raises:
            RunFolderError: there is no finished run, or config.toml was changed since.
            StorageError: a file is damaged.
        """
        if not self.config.exists():
            raise RunFolderError(f"'{self.path}' should be a run folder. It has no config.toml.")
        if RunFolder(self.rewritten).summary.exists():
            raise RunFolderError(
                f"'{self.path}' was being changed, by `fedrecgel forget` or for titles, and that was stopped. Run the "
                f"same command again."
            )
        summary, files = self._unseal()
        settings = read_settings(self.config)
        if files is None:
            warnings.warn(
                f"'{self.path}' was written by an earlier version (format 1), without checksums. It is read as it is; "
                f"damage to its files would not be noticed.",
                stacklevel=3,
            )
        elif files.get(self.config.name) != settings_mark(settings):
            raise RunFolderError(
                f"'{self.config}' was changed after the run, or belongs to another run. Restore it from a copy; to "
                f"train with other settings, choose another --out."
            )
        history = self.read_history(None if files is None else files.get(self.metrics.name, ""))
        return Finished(summary, history, settings, files)

    def check_data(self, fingerprint: str) -> None:
        """Refuse a finished run on other data that had the same settings."""
        if self.read_summary()["protocol"]["fingerprint"] != fingerprint:
            raise RunFolderError(f"'{self.path}' holds this run on other data. Choose another --out.")
