"""Every method behind every channel, on both engines: what runs, and why the rest is refused.

python benchmarks/channels.py [--methods A,B] [--channels A,B] [--rounds N]

Demo data, few rounds. Under `local` one process plays all devices; under `nodes` three nodes of this process get the
letters that Flower would carry. A cell that runs shows HR@10 in percent; a refusal is numbered, and its sentence
stands below the table. Cohorts that a method's sums do not hide are enlarged to all users, which is noted by a star.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import fedrecgel as fr
from fedrecgel.channels.registry import CHANNELS
from fedrecgel.data.split import Split
from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import FedrecgelError
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.flower import check_start, serve, work_of
from fedrecgel.runs.result import open_run
from fedrecgel.runs.train import train_config

SMALL: dict[str, dict[str, Any]] = {"spectra": {"rank": 16}, "fedrecgel": {"start_rank": 16}, "fedncf": {}}
"""So that 600 users are enough for sums of spectra."""
DP = {"epsilon": 8.0, "clip": 0.5}


class Courier:
    """Carries letters to nodes of this process."""

    def __init__(self, places: list[Path]) -> None:
        policy = Policy(methods=tuple(METHODS), channels=tuple(CHANNELS), min_users=1)
        self._nodes = {n: Node(place, work_of, simulated=True, policy=policy) for n, place in enumerate(places)}

    def nodes(self) -> dict[int, str]:
        """All of them, by key."""
        return {number: f"key {number}" for number in self._nodes}

    def exchange(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        """Ask and answer."""
        for number, letter in letters.items():
            try:
                yield number, self._nodes[number].answer(kind, letter)
            except FedrecgelError as error:
                yield number, Letter({"error": str(error)})


@dataclass
class Table:
    """Cells, and the sentences of refusals."""

    cells: dict[tuple[str, str, str], str] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)

    def refuse(self, sentence: str) -> str:
        """The number of a refusal."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)
        return f"({1 + self.sentences.index(sentence)})"


def run_one(config: Config, split: Split, engine: str) -> float:
    """HR@10 of a run.

    Raises:
        FedrecgelError: it is refused.
    """
    if engine == "local":
        return train_config(config, split).metrics["HR@10"]
    check_start(config, split)
    with tempfile.TemporaryDirectory() as place:
        shards = write_shards(split, Path(place) / "shards", config.flower.nodes)
        order = {"config": json.dumps(config.to_dict()), "folder": f"{place}/run", "resume": False, "shards": ""}
        serve(Courier(shards), order)
        return open_run(Path(place) / "run").metrics["HR@10"]


def config_of(method: str, channel: str, engine: str, rounds: int, split: Split, **options: Any) -> Config:
    """Few rounds of a method."""
    needed = METHODS[method](**SMALL.get(method, {})).rounds
    sections: dict[str, Any] = {
        "data": split.interactions.loaded_as,
        "run": {"rounds": needed or rounds, "engine": {"nodes": "flower"}.get(engine, engine), "channel": channel},
        "method": {"name": method, **SMALL.get(method, {}), **options},
        "evaluation": {"reference": "off"},
    }
    if "dp" in channel:
        sections["dp"] = DP
    if engine == "nodes":
        sections["flower"] = {"nodes": 3, "wait_seconds": 0.1, "round_seconds": 0.1}
    return from_dict(sections)


def cell(method: str, channel: str, engine: str, rounds: int, split: Split, table: Table) -> str:
    """What happens, as often as a way out is offered."""
    found, tries = "", [("", {}), ("*", {"fraction": 1.0})]
    for mark, options in tries:
        try:
            config = config_of(method, channel, engine, rounds, split, **options)
            return f"{100 * run_one(config, split, engine):.0f}{mark}"
        except FedrecgelError as error:
            sentence = str(error).replace(f"'{method}'", "M").replace(f"'{METHODS[method].__name__}'", "M")
            found = table.refuse(sentence)
            if "cohorts of at least" not in sentence:
                return found
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--channels", default=",".join(CHANNELS))
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    split, table, channels = fr.load("demo").split(), Table(), given.channels.split(",")
    heads = [f"{name}, {engine}" for name in channels for engine in ("local", "nodes")]
    print(f"| method | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}", flush=True)
    for method in given.methods.split(","):
        row = [cell(method, name, kind, given.rounds, split, table) for name in channels for kind in ("local", "nodes")]
        print(f"| `{method}` | {' | '.join(row)} |", flush=True)
    print()
    for number, sentence in enumerate(table.sentences, start=1):
        print(f"{number}. {sentence}")


if __name__ == "__main__":
    main()
