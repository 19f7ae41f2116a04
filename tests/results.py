"""A small folder of results, made by the commands themselves, for tests of experiments and reports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from fedrecgel.cli.main import main
from fedrecgel.studies.tasks import Task
from fedrecgel.studies.workers import Outcome, attempt

SETTINGS = ("method.gmf_dim=4", "method.mlp_dim=6", "method.fraction=0.5", "evaluation.every=1")
METHODS = "fedncf,fedrecgel,fedmf"
EXPERIMENTS: dict[str, list[str]] = {
    "main-table": ["--methods", METHODS],
    "ablation": ["--settings", "published"],
    "sensitivity": ["--settings", "published", "--grid", "0,0.1,1"],
    "landscape": ["--normalisation", "unit", "--grid-points", "3", "--clients", "5"],
    "quirks": ["--methods", "fedncf,pfedrec"],
    "privacy": ["--methods", "fedncf", "--epsilons", "inf,8"],
}


def write_csv(path: Path) -> Path:
    """Interactions of 20 users with 160 items."""
    rows = [f"u{user},{(10 * user + k) % 160},{k}" for user in range(20) for k in range(10)]
    path.write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    return path


def words(kind: str, csv: Path, out: Path, *more: str) -> list[str]:
    """The command line of a small experiment."""
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    small = ["--datasets", str(csv), "--seeds", "2", "--rounds", "3", "--out", str(out)]
    return ["experiment", kind, *EXPERIMENTS[kind], *small, *settings, *more]


def run_here(tasks: Sequence[Task], jobs: int, stop: Event | None = None) -> Iterator[Outcome]:
    """What the runner does, in this process: starting one takes longer than these tasks."""
    for task in tasks:
        if stop is not None and stop.is_set():
            return
        started = time.perf_counter()
        status, message = attempt(task, stop.is_set if stop is not None else lambda: False)
        yield Outcome(task, status, message, time.perf_counter() - started)


def patch_runner(patch: pytest.MonkeyPatch) -> None:
    """Let commands do their tasks here."""
    patch.setattr("fedrecgel.cli.experiment.run_tasks", run_here)
    patch.setattr("fedrecgel.studies.plan.run_tasks", run_here)


def make_results(folder: Path) -> Path:
    """Every experiment on a small file."""
    csv = write_csv(folder / "shop.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch_runner(patch)
        for kind in EXPERIMENTS:
            assert main(words(kind, csv, folder / "results", "--quiet")) == 0
    return folder / "results"
