"""Seconds per round and peak memory of every method on one data set, each in a process of its own.

    python benchmarks/methods.py [--dataset amazon-video] [--rounds 4] [--workers 2] [METHOD ...]

Settings are those of `configs/<dataset>/<method>.toml`. Methods with an approximate mode there are also measured in
their exact mode, with fewer clients if EXACT says so; training time is then scaled to the participation of the config.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from fedrecgel.bench.measure import peak_rss_gb
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import Config, MethodSettings
from fedrecgel.runs.train import load_split
from fedrecgel.runs.training import Training
from fedrecgel.studies.presets import Presets

EXACT: dict[str, tuple[dict[str, object], float]] = {
    "cofedrec": ({"anchors": 0}, 0.05),
    "gpfedrec": ({"graph": "exact", "neighbours": 0}, 1.0),
}
"""What makes a method exact, and the share of the config's clients that is measured: n² work takes minutes a round."""
COLUMNS = ("method", "mode", "clients", "train s", "server s", "evaluate s", "peak GB")


def config_of(dataset: str, method: str, rounds: int, workers: int) -> Config:
    """The tuned settings, with acceleration where there is one."""
    given = Presets(Path("configs")).origin(dataset, method, "tuned", 0).config
    local = replace(given.local, workers=workers, accelerate=True)
    return replace(given, run=replace(given.run, rounds=rounds), local=local)


def with_options(config: Config, options: dict[str, object]) -> Config:
    """The same with other hyper-parameters."""
    settings = MethodSettings(config.method.name, config.method.variant, {**config.method.options, **options})
    return replace(config, method=settings)


def measure(config: Config, mode: str, share: float) -> None:
    """Train some rounds, evaluate once, print a row; wall time, since rounds use several workers."""
    training = Training(config, load_split(config), None)
    method, server, train, combine = training.method, training.server, list[float](), list[float]()
    clients = 0
    for number in range(config.run.rounds):
        cohort = method.cohort(server, training.engine.population(), number, training.draws)
        clients = len(cohort)
        started = time.perf_counter()
        trained = training.engine.train(server, cohort, number)
        middle = time.perf_counter()
        server = method.server_update(server, trained.inbox, number, training.draws)
        train.append(middle - started)
        combine.append(time.perf_counter() - middle)
    started = time.perf_counter()
    training.engine.ranks(server, "test", "candidates")
    evaluate = time.perf_counter() - started
    usual = [median(times[1:] or times) for times in (train, combine)]
    usual[0] /= share
    scale = "" if share == 1 else f", scaled from {clients}"
    row = (config.method.name, mode + scale, f"{round(clients / share):,}", *(f"{t:.2f}" for t in usual))
    print(" | ".join((*row, f"{evaluate:.2f}", f"{peak_rss_gb():.2f}")), flush=True)


def main() -> None:
    """All methods, one process after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    federated = [name for name, kind in METHODS.items() if kind.kind == "federated"]
    parser.add_argument("methods", nargs="*", default=federated)
    parser.add_argument("--dataset", default="amazon-video")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.mode:
        torch.set_num_threads(1)
        config = config_of(args.dataset, args.methods[0], args.rounds, args.workers)
        mode = json.loads(args.mode)
        measure(with_options(config, mode["options"]), mode["name"], mode["share"])
        return
    print(" | ".join(COLUMNS))
    for method in args.methods:
        config = config_of(args.dataset, method, args.rounds, args.workers)
        modes = [{"name": "config", "options": {}, "share": 1.0}]
        options, share = EXACT.get(method, ({}, 1.0))
        own = config.to_dict()["method"]
        if any(own[key] != value for key, value in options.items()):
            fraction = {"fraction": own["fraction"] * share}
            modes.append({"name": "exact", "options": {**options, **fraction}, "share": share})
        for mode in modes:
            command = [sys.executable, __file__, method, "--mode", json.dumps(mode), "--dataset", args.dataset]
            subprocess.run([*command, "--rounds", str(args.rounds), "--workers", str(args.workers)], check=True)


if __name__ == "__main__":
    main()
