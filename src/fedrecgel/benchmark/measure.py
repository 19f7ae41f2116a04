"""Measure one data set: ours, ours accelerated and the naive engine, interleaved in one process."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from fedrecgel.benchmark.machine import fma_gflops
from fedrecgel.benchmark.naive import NaiveEngine
from fedrecgel.data.federation import Federation
from fedrecgel.data.load import DataSettings, load_data
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.accelerate import accelerated
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.engine.store import ClientStore
from fedrecgel.methods.base import Method, Problem, Server
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.privacy.channel import Plain
from fedrecgel.tensors import Ids


@dataclass(frozen=True)
class Case:
    """A data set and how much of it is measured."""

    data: DataSettings
    fraction: float = 0.1
    rounds: int = 9
    naive_clients: int = 160
    """Clients the naive engine trains, scaled to the cohort."""
    naive_rounds: int = 5
    """Rounds in which it does."""
    evaluate: bool = True


CASES = {
    "filmtrust": Case(DataSettings("filmtrust")),
    "lastfm-2k": Case(DataSettings("lastfm-2k")),
    "amazon-video": Case(DataSettings("amazon-video"), naive_clients=80),
    "qb-article-shape": Case(
        DataSettings("synthetic", users=24_516, items=7_355, interactions=348_736), rounds=5, naive_clients=80
    ),
    "million": Case(
        DataSettings("synthetic", users=1_000_000, items=100_000, interactions=20_000_000),
        fraction=0.01,
        rounds=3,
        naive_rounds=0,
        evaluate=False,
    ),
}
"""The shapes that are compared; `million` is too large for the naive engine and for ranking everyone in a benchmark."""


def flops_per_sample(method: FedRecGEL) -> float:
    """Work of one merged example: base, shared-perturbed and private pass, with the item half of layer 1 gathered."""
    h1, h2, h3 = method.model.hidden
    tower = h1 * h2 + h2 * h3
    first = h1 * method.mlp_dim
    base = 3 * tower + 2 * first  # forward, backward, weights; weights and rows of layer 1
    shared = 3 * tower + 3 * first
    private = 2 * tower
    return 2.0 * (base + shared + private)


class Contender:
    """One method in one engine with its own server and store."""

    def __init__(self, method: Method, federation: Federation, workers: int) -> None:
        self.method, self.draws = method, Draws(0)
        problem = Problem(federation.n_clients, federation.n_items)
        self.store = ClientStore(method, problem, self.draws)
        settings = LocalSettings(workers=workers)
        self.engine = LocalEngine(method, federation, Plain(), self.store, self.draws, settings)
        self.server: Server = method.init_server(problem, self.draws)
        self.round = 0

    def cohort(self) -> Ids:
        """Who trains in the next round."""
        return self.method.cohort(self.server, self.engine.population(), self.round, self.draws)

    def train(self) -> Ids:
        """One round; returns its cohort."""
        cohort = self.cohort()
        trained = self.engine.train(self.server, cohort, self.round)
        self.server = self.method.server_update(self.server, trained.inbox, self.round, self.draws)
        self.round += 1
        return cohort

    def evaluate(self) -> None:
        """Rank every client's test item among its candidates."""
        self.engine.ranks(self.server, "test", "candidates")


def cpu_seconds(action: Any) -> float:
    """Processor time of this process: what other processes do counts less than in wall time."""
    started = time.process_time()
    action()
    return time.process_time() - started


def wall_seconds(action: Any) -> float:
    """Time on the clock."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def peak_rss_gb() -> float:
    """Largest memory of this process so far."""
    import resource  # not on Windows, where the other commands still work

    scale = 1e9 if sys.platform == "darwin" else 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


@dataclass
class Rounds:
    """Processor seconds on one worker, each round beside the work there was in it: cohorts differ in their examples."""

    samples: list[int] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)
    """GFLOP/s of the core, measured between the rounds."""
    naive: list[float] = field(default_factory=list)
    train: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    evaluate: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def row(self, name: str, flops: float) -> dict[str, Any]:
        """Medians of one contender, of ratios within each round."""
        train, evaluate = self.train[name], self.evaluate[name]
        pace = median(samples / seconds for samples, seconds in zip(self.samples, train, strict=True))
        ratios = [naive / ours for naive, ours in zip(self.naive, train, strict=False)]  # not in all rounds
        return {
            "samples": int(median(self.samples)),
            "train_seconds": median(train),
            "evaluate_seconds": median(evaluate) if evaluate else None,
            "naive_train_seconds": median(self.naive) if ratios else None,
            "ratio_to_naive": median(ratios) if ratios else None,
            "samples_per_second": pace,
            "percent_of_peak": 100 * pace * flops / 1e9 / median(self.peak),
        }


def measure(case: Case, data_dir: str | None) -> tuple[dict[str, Any], float]:
    """All numbers of one data set, medians on one worker unless a key says otherwise, and a core's peak in GFLOP/s."""
    torch.set_num_threads(1)
    settings = DataSettings(**{**case.data.__dict__, "dir": data_dir})
    split: Split = load_data(settings).split(candidates=99)
    federation = Federation(split)
    method = FedRecGEL(fraction=case.fraction)
    native = accelerated(method)
    contenders = {"plain": Contender(method, federation, 1)}
    if native is not None:
        contenders["accelerated"] = Contender(native, federation, 1)
    for contender in contenders.values():
        contender.train()  # warm up
    rss = peak_rss_gb()
    naive = NaiveEngine(method, federation, contenders["plain"].server.shared)
    found = Rounds()
    cohort = torch.empty(0)
    for number in range(case.rounds):
        cohort = contenders["plain"].cohort()
        found.samples.append(merged_samples(federation, cohort, contenders["plain"].round))
        for name, contender in contenders.items():
            found.train[name].append(cpu_seconds(contender.train))
            if case.evaluate:
                found.evaluate[name].append(cpu_seconds(contender.evaluate))
        found.peak.append(fma_gflops(repetitions=1))
        if number < case.naive_rounds:
            some = spread(cohort, federation.n_examples(cohort), case.naive_clients)
            users = contenders["plain"].store.read(some)["user"]
            seconds = cpu_seconds(lambda some=some, users=users: naive.train(some, users))
            found.naive.append(seconds * len(cohort) / len(some))
    rows = {
        name: {"clients": len(cohort), **found.row(name, flops_per_sample(method)), "peak_rss_gb": rss}
        for name in contenders
    }
    workers = {name: _two_workers(c.method, federation) for name, c in contenders.items()} if case.evaluate else {}
    row = {**rows["plain"], "accelerated": rows.get("accelerated"), "two_workers_speedup": workers}
    return row, median(found.peak)


def spread(cohort: Ids, lengths: Int[Tensor, " C"], n: int) -> Int[Tensor, " S"]:
    """Up to n of the clients, evenly from the longest to the shortest: scaled up, they cost as the cohort does."""
    n = min(n, len(cohort))
    by_length = cohort[torch.argsort(lengths, descending=True)]
    return by_length[((torch.arange(n) + 0.5) * len(cohort) / n).long()]


def merged_samples(federation: Federation, cohort: Ids, round: int) -> int:
    """Distinct (client, item) pairs of a round: what is computed after duplicates are merged."""
    parts = [cohort[start : start + 1000] for start in range(0, len(cohort), 1000)]
    return sum(int(federation.batch(ids, round, Draws(0)).row_mask.count_nonzero()) for ids in parts)


def _two_workers(method: Method, federation: Federation) -> float:
    """Wall time of a round on one worker over that of the same round on two."""
    one, two = Contender(method, federation, 1), Contender(method, federation, 2)
    one.train(), two.train()
    return median(wall_seconds(one.train) / wall_seconds(two.train) for _ in range(9))
