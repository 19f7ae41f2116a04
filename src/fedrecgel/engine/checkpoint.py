"""The checkpoint of a run: resuming equals not stopping."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from fedrecgel.methods.messages import Server
from fedrecgel.storage import read_tensors, write_tensors
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors


@dataclass(frozen=True)
class _SnapshotAbout:
    kind: Literal["snapshot"]
    round: int


@dataclass(frozen=True)
class _CheckpointAbout:
    kind: Literal["checkpoint"]
    round: int
    best_round: int | None
    totals: dict[str, float | None]
    history: list[dict[str, Any]]


def _write_groups(path: Path, run: str, groups: Mapping[str, Tensors], about: object) -> None:
    tensors = {f"{group}/{name}": v for group, named in groups.items() for name, v in named.items()}
    write_tensors(path, tensors, msgspec.to_builtins(about), run)


def _groups(tensors: Tensors) -> dict[str, Tensors]:
    groups: dict[str, Tensors] = {"shared": {}, "kept": {}, "clients": {}, "channel": {}}
    for key, value in tensors.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = value
    return groups


@dataclass(frozen=True)
class Snapshot:
    """A model at the end of a round: what devices download, and what they keep."""

    round: int
    run: str
    """Fingerprint of the run it belongs to."""
    shared: Tensors
    clients: State

    def write(self, path: Path) -> None:
        """Replace the file atomically."""
        groups = {"shared": self.shared, "clients": self.clients.pack()}
        _write_groups(path, self.run, groups, _SnapshotAbout("snapshot", self.round))

    @classmethod
    def read(cls, path: Path, run: str) -> Snapshot:
        """What `write` wrote for this run."""
        tensors, about, _ = read_tensors(path, _SnapshotAbout, run=run)
        groups = _groups(tensors)
        return cls(about.round, run, groups["shared"], State.unpack(groups["clients"]))


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

    history: Sequence[Mapping[str, Any]] = ()
    """One entry per finished round, as in metrics.jsonl, which may have gone further or not so far."""
    channel: Tensors = field(default_factory=dict)
    """What the channel keeps; a secret may be among it."""

    def write(self, path: Path) -> None:
        """Replace the file atomically."""
        groups = {"shared": self.server.shared, "kept": self.server.kept, "clients": self.clients.pack()}
        groups["channel"] = self.channel
        totals = {name: value if math.isfinite(value) else None for name, value in self.totals.items()}
        history = [dict(line) for line in self.history]
        about = _CheckpointAbout("checkpoint", self.round, self.best_round, totals, history)
        _write_groups(path, self.run, groups, about)

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """The latest complete checkpoint."""
        tensors, about, run = read_tensors(path, _CheckpointAbout)
        groups = _groups(tensors)
        server, clients = Server(groups["shared"], groups["kept"]), State.unpack(groups["clients"])
        totals = {name: -math.inf if value is None else value for name, value in about.totals.items()}
        return cls(about.round, run, server, clients, about.best_round, totals, about.history, groups["channel"])
