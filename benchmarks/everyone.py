"""What `recommend --all` and the ranking of a whole catalogue cost for each method, and would for a million users.

    python benchmarks/everyone.py [--items 100000] [--users 6000] [--workers 1] [METHOD ...]

A model of one round on synthetic data, all items ranked for some users: processor seconds of these, and, in proportion,
hours of one core for a million. NeuMF's score takes 20,480 floating-point operations (`% peak` counts these).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

from fedrecgel.bench.machine import fma_gflops
from fedrecgel.bench.measure import peak_rss_gb
from fedrecgel.data.synthetic import generate
from fedrecgel.runs.api import train
from fedrecgel.runs.everyone import Everyone
from fedrecgel.runs.training import Training

NEUMF_SCORE = 20_480
MILLION = 1_000_000
COLUMNS = {"method": -12, "what": -11, "users": 8, "cpu s": 9, "wall s": 9, "ns/score": 10}
COLUMNS |= {"h for 1M": 10, "% peak": 8, "RSS GB": 8}


def measure(method: str, n_users: int, n_items: int, workers: int, users: int) -> None:
    """Two rows: lists for everybody, and ranks of held-out items."""
    split = generate(n_users, n_items, max(20 * n_users, n_items)).split()
    options: dict[str, Any] = {
        "evaluation": {"full": False, "reference": "off"},
        "local": {"workers": workers, "accelerate": True},
    }
    result = train(method, split, rounds=None if method == "spectra" else 1, **options)
    everyone = Everyone(result, 10)
    everyone.table(range(min(users, 16)))
    report(method, "recommend", users, n_items, lambda: everyone.table(range(users)))
    training = Training(result.config, split, None)
    training.store.load(result.clients)
    training.server = type(training.server)(result.shared)
    sample = training.engine.ranked("test")[:users]  # type: ignore[attr-defined]

    def rank() -> None:
        training.engine.ranks(training.server, "test", "catalogue", None, sample)  # type: ignore[call-arg]

    report(method, "rank", len(sample), n_items, rank)


def report(method: str, what: str, users: int, n_items: int, work: Callable[[], object]) -> None:
    """Time it and print."""
    started, processor = time.perf_counter(), time.process_time()
    work()
    wall, seconds = time.perf_counter() - started, time.process_time() - processor
    scores = users * n_items
    peak = f"{100 * scores * NEUMF_SCORE / seconds / 1e9 / fma_gflops():.0f}" if method == "fedrecgel" else "-"
    cells = [method, what, f"{users:,}", f"{seconds:.2f}", f"{wall:.2f}", f"{1e9 * seconds / scores:.2f}"]
    cells += [f"{seconds / users * MILLION / 3600:.2f}", peak, f"{peak_rss_gb():.2f}"]
    print(_row(cells), flush=True)


def _row(cells: Iterable[str]) -> str:
    return "".join(
        f"{cell:<{-w}}" if w < 0 else f"{cell:>{w}}" for cell, w in zip(cells, COLUMNS.values(), strict=True)
    )


def main() -> None:
    """All methods asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=["fedmf", "spectra", "fedrecgel"])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=6000)
    parser.add_argument("--ranked", type=int, help="of these users (default 1000; NeuMF takes 40)")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    print(_row(COLUMNS), flush=True)
    for method in args.methods:
        few = args.ranked or (40 if method == "fedrecgel" else 1000)
        measure(method, args.users, args.items, args.workers, few)


if __name__ == "__main__":
    main()
