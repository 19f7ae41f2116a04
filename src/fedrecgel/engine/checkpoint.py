"""Files of tensors, written atomically, and the checkpoint made of them: resuming equals not stopping."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.methods.base import Server
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors

FORMAT = "fedrecgel-1"
TEMPORARY = ".tmp"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write(temporary path)` make the file, then move it into place: readers see the old file or the new one.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file is untouched.
    """
    # A folder, for writers make temporary files of their own; with one name, so that the next try clears it away.
    room = path.with_name(f".{path.name}{TEMPORARY}")
    temporary = room / path.name
    try:
        _clear(room)
        room.mkdir(parents=True)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"'{path}' could not be written: {error}. What was there before is untouched; "
            f"make room or choose another place."
        ) from error
    finally:
        _clear(room)


def _clear(room: Path) -> None:
    """Remove what an earlier try left, a folder or a file; what cannot be removed shows when the folder is made."""
    shutil.rmtree(room, ignore_errors=True)
    with suppress(OSError):
        room.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A rename is safe from a power cut only once its folder is on disk."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_tensors(path: Path, tensors: Tensors, about: Mapping[str, Any]) -> None:
    """Tensors and a JSON description in one safetensors file (no pickle: loading runs no code)."""
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = {FORMAT: json.dumps(about)}  # one key: several would come out in random order
    write_atomically(path, lambda temporary: save_file(contiguous, temporary, metadata))


def read_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """What `write_tensors` wrote.

    Raises:
        StorageError: the file is missing or truncated.
        RunFolderError: it is no file of this package.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise RunFolderError(f"'{path}' should be a file of this package. Found another safetensors file.")
            # Cloned into aligned memory: where a tensor lies in the file decides the last bits of products with it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads(metadata[FORMAT])
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"'{path}' should be a complete safetensors file. It cannot be read: {error}. "
            f"Restore it from a copy, or start again in another folder."
        ) from error


def _write_groups(path: Path, groups: Mapping[str, Tensors], about: Mapping[str, Any]) -> None:
    write_tensors(path, {f"{group}/{name}": v for group, named in groups.items() for name, v in named.items()}, about)


def _read_groups(path: Path, kind: str) -> tuple[dict[str, Tensors], dict[str, Any]]:
    tensors, about = read_tensors(path)
    groups: dict[str, Tensors] = {"shared": {}, "kept": {}, "clients": {}}
    for key, value in tensors.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = value
    if about.get("kind") != kind:
        raise RunFolderError(f"'{path}' should be a {kind}. Found another file of this package.")
    return groups, about


@dataclass(frozen=True)
class Snapshot:
    """A model at the end of a round: what devices download, and what they keep."""

    round: int
    shared: Tensors
    clients: State

    def write(self, path: Path) -> None:
        """Replace the file atomically."""
        about = {"kind": "snapshot", "round": self.round}
        _write_groups(path, {"shared": self.shared, "clients": self.clients.packed()}, about)

    @classmethod
    def read(cls, path: Path) -> Snapshot:
        """What `write` wrote."""
        groups, about = _read_groups(path, "snapshot")
        return cls(about["round"], groups["shared"], State.unpacked(groups["clients"]))


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on; randomness has no state to save."""

    round: int
    """Rounds finished."""
    run: str
    """Fingerprint of the run it belongs to."""
    server: Server
    clients: State
    best_round: int | None
    """The selected round so far, when the last one is not what will be reported; its snapshot has its own file."""
    totals: Mapping[str, float]
    """Seconds and bytes so far, and the best value of the selection metric."""

    def write(self, path: Path) -> None:
        """Replace the file atomically."""
        groups = {"shared": self.server.shared, "kept": self.server.kept, "clients": self.clients.packed()}
        about = {"kind": "checkpoint", "round": self.round, "run": self.run, "best_round": self.best_round}
        _write_groups(path, groups, {**about, "totals": dict(self.totals)})

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """The latest complete checkpoint."""
        groups, about = _read_groups(path, "checkpoint")
        server, clients = Server(groups["shared"], groups["kept"]), State.unpacked(groups["clients"])
        return cls(about["round"], about["run"], server, clients, about["best_round"], about["totals"])
