"""Nodes in this process: the same letters, no carrier."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from fedrecgel.data.split import Split
from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import FedrecgelError
from fedrecgel.methods import METHODS, find_method
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.flower import serve, work_of
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.reference import WITHHELD
from fedrecgel.runs.result import Result, open_run
from fedrecgel.runs.summary import BARE

Tamper = Callable[[int, str, Letter], list[Letter | Lost]]
"""What arrives instead of a node's answer."""

OPEN = Policy(methods=tuple(METHODS), min_users=1)
"""The policy of a node that hosts a handful of users and answers every method."""
TINY = {"gmf_dim": 4, "mlp_dim": 6, "fraction": 0.5}


class InProcess:
    """A courier to nodes of this process; `tamper` plays what can happen on the way."""

    def __init__(
        self,
        places: list[Path],
        tamper: Tamper = lambda node, kind, answer: [answer],
        faulty: Mapping[int, Callable[[Path], Node]] | None = None,
        *,
        simulated: bool = True,
    ) -> None:
        """Nodes 100, 101, ...; some of them made otherwise, as those that play faults; real ones have secrets."""
        made = faulty or {}
        self._nodes = {
            number: made[number](place) if number in made else Node(place, work_of, simulated=simulated, policy=OPEN)
            for number, place in enumerate(places, start=100)
        }
        self.keys = {number: f"key {number}" for number in self._nodes}
        self.tamper = tamper
        self.offline: set[int] = set()
        self.sent: list[tuple[str, int, Letter]] = []

    def nodes(self) -> dict[int, str]:
        return {node: self.keys[node] for node in sorted(self._nodes.keys() - self.offline)}

    def restart(self, node: int, as_node: int) -> None:
        """A node that comes back may have another number; its key stays."""
        self._nodes[as_node], self.keys[as_node] = self._nodes.pop(node), self.keys[node]

    def exchange(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        for node, letter in reversed(list(letters.items())):  # the order of arrival must not matter
            self.sent.append((kind, node, letter))
            try:
                answer = self._nodes[node].answer(kind, letter)
            except FedrecgelError as error:
                answer = Letter({"error": str(error)})
            copied = {name: value.clone() for name, value in answer.tensors.items()}
            for arriving in self.tamper(node, kind, Letter(json.loads(json.dumps(answer.about)), copied)):
                yield node, arriving


def config_of(name: str = "fedrecgel", **sections: Any) -> Config:
    """A run of three rounds, or as many as the method states, in double precision."""
    tiny: dict[str, Any] = TINY if name in ("fedncf", "fedrecgel") else {}
    run = {
        "rounds": max(3, find_method(name)().rounds or 0),
        "dtype": "float64",
        "engine": "flower",
        "channel": "plain",
        **sections.pop("run", {}),
    }
    flower = {"nodes": 3, "wait_seconds": 0.1, "round_seconds": 0.1, **sections.pop("flower", {})}
    method = {"name": name, **tiny, **sections.pop("method", {})}
    return from_dict({"data": {"name": "tiny"}, "run": run, "flower": flower, "method": method, **sections})


def served(
    config: Config,
    split: Split,
    folder: Path,
    courier: InProcess | None = None,
    *,
    resume: bool = False,
    simulated: bool = True,
) -> Result:
    """Run the server's app over nodes in this process."""
    shards = folder / "checkpoint" / "nodes"
    if courier is None:
        courier = InProcess(write_shards(split, shards, config.flower.nodes))
    order = {
        "config": json.dumps(config.to_dict()),
        "folder": str(folder),
        "resume": resume,
    }
    serve(courier, order, shards=shards if simulated else None)
    return open_run(folder)


def warnings_of(result: Result) -> list[str]:
    """What a run warns of, beside the popularity row that all runs on nodes withhold."""
    return [sentence for sentence in result.summary["warnings"] if sentence not in (WITHHELD, BARE)]


def shards_in(folder: Path) -> Path:
    return RunFolder(folder).checkpoint.parent / "nodes"


def same(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor], tolerance: float = 0.0) -> None:
    """The same names and values."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=tolerance, atol=tolerance)
