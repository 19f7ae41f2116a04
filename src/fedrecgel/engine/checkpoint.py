"""The checkpoint of a run: resuming equals not stopping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrecgel.errors import RunFolderError
from fedrecgel.methods.base import Server
from fedrecgel.storage import read_tensors, write_tensors
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors


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
        _write_groups(path, {"shared": self.shared, "clients": self.clients.pack()}, about)

    @classmethod
    def read(cls, path: Path) -> Snapshot:
        """What `write` wrote."""
        groups, about = _read_groups(path, "snapshot")
        return cls(about["round"], groups["shared"], State.unpack(groups["clients"]))


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
        groups = {"shared": self.server.shared, "kept": self.server.kept, "clients": self.clients.pack()}
        about = {"kind": "checkpoint", "round": self.round, "run": self.run, "best_round": self.best_round}
        _write_groups(path, groups, {**about, "totals": dict(self.totals)})

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """The latest complete checkpoint."""
        groups, about = _read_groups(path, "checkpoint")
        server, clients = Server(groups["shared"], groups["kept"]), State.unpack(groups["clients"])
        return cls(about["round"], about["run"], server, clients, about["best_round"], about["totals"])
