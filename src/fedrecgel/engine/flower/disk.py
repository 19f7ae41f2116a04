"""DiskStore: the private state of a shard's users, on the node's disk, safe from kills.

A round leaves one file with the state of the clients it trained, written atomically. The state after r rounds is what
the files of rounds before r say, the latest last. So a round that is repeated, after a kill on either side, starts from
the same state as the first time, and files of rounds the server has taken back are simply ignored.
"""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from fedrecgel.draws import Draws
from fedrecgel.engine.store import ClientStore
from fedrecgel.errors import StorageError
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Problem
from fedrecgel.storage import TEMPORARY, read_tensors, remove, write_tensors, write_text
from fedrecgel.tables import State
from fedrecgel.tensors import Ids

SINCE = "since"
"""The file that says since which round this shard takes part in a run; methods may keep nothing else."""
MERGE_AT = 8
"""So many settled files become one."""
FILE = re.compile(r"round-(\d{8,})\.safetensors")
HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class _About:
    round: int


class DiskStore(ClientStore):
    """A store that begins with what a folder holds and puts there what a round taught."""

    def __init__(self, folder: Path, method: Method, problem: Problem, draws: Draws, *, rounds: int) -> None:
        super().__init__(method, problem, draws)
        self._folder, self._rounds = folder, rounds
        self._learnt: list[Ids] = []
        self._known: list[Ids] = []
        for path in self._files():
            if _round_of(path) < rounds:
                tensors, about, _ = read_tensors(path, _About, run=folder.name)
                if about.round != _round_of(path):
                    raise StorageError(f"'{path}' should hold round {_round_of(path)}. Found round {about.round}.")
                ids = tensors.pop("ids")
                super().write(ids, State.unpack(tensors))
                self._known.append(ids)

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("round-*.safetensors") if FILE.fullmatch(path.name))

    def write(self, ids: Ids, private: State) -> None:
        """Keep what these clients learnt; `commit` makes it last."""
        super().write(ids, private)
        self._learnt.append(ids)

    def commit(self) -> None:
        """Put what was learnt on disk as the outcome of the current round, in place of an earlier attempt."""
        for path in self._files():
            if _round_of(path) >= self._rounds:
                remove(path)
        if self._learnt and (self._tensors or self._stacks or self._tables):
            self._save(self._rounds, torch.cat(self._learnt))
            self._known.append(torch.cat(self._learnt))
            self._learnt = []

    def merge(self) -> None:
        """Make one file of many; only rounds the server will never take back may be in them."""
        settled = [path for path in self._files() if _round_of(path) < self._rounds]
        if len(settled) < MERGE_AT:
            return
        self._save(_round_of(settled[-1]), self.trained())
        for path in settled[:-1]:  # a kill before they are gone is harmless: the later file wins
            path.unlink()

    def trained(self) -> Ids:
        """Everybody who has ever trained here."""
        return torch.tensor(sorted({user for ids in self._known for user in ids.tolist()}), dtype=torch.int64)

    def _save(self, round: int, ids: Ids) -> None:
        _clear(self._folder)
        path = self._folder / f"round-{round:08d}.safetensors"
        write_tensors(path, {"ids": ids, **self.read(ids).pack()}, {"round": round}, self._folder.name)


def since(folder: Path, round: int | None) -> int | None:
    """The first round of a run that this folder knows of, a round that begins now included; None if there is none.

    Raises:
        StorageError: the file is damaged.
    """
    place = folder / SINCE
    try:
        known = [int(place.read_text(encoding="ascii"))] if place.exists() else []
    except (OSError, ValueError) as error:
        raise StorageError(f"'{place}' should hold the number of a round. It cannot be read: {error}.") from error
    return min([*known, *([] if round is None else [round])], default=None)


def keep_since(folder: Path, round: int) -> None:
    """Note that this round was taken part in: a folder without the note has lost what it had."""
    first = since(folder, round)
    if first != since(folder, None):
        write_text(folder / SINCE, str(first))
    (folder / SINCE).touch()  # a run that goes on is not swept, even if its method keeps nothing


def sweep(state: Path, keep_days: float) -> list[str]:
    """Delete what runs left that nobody touched for so many days, and half-written files; the names of those runs.

    Only folders directly in `state` are looked at, and links in it are left alone.
    """
    gone = []
    _clear_old(state)
    for folder in sorted(state.iterdir()) if state.is_dir() else []:
        if folder.is_symlink() or not folder.is_dir() or folder.name.endswith(TEMPORARY):
            continue
        if _touched(folder) < time.time() - keep_days * DAY:
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder.name)
        else:
            _clear_old(folder)
    return gone


def _touched(folder: Path) -> float:
    """When something in a folder was last written; now, if another process is at it."""
    try:
        return max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    except FileNotFoundError:
        return time.time()


def _clear_old(folder: Path) -> None:
    """Remove what was left half-written, unless somebody may be writing it now."""
    for stale in folder.glob(f".*{TEMPORARY}"):
        if _touched(stale) < time.time() - HOUR:
            shutil.rmtree(stale, ignore_errors=True)


def _clear(folder: Path) -> None:
    """Remove what a process that was killed while writing left."""
    for stale in folder.glob(f".*{TEMPORARY}"):
        shutil.rmtree(stale, ignore_errors=True)


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))
