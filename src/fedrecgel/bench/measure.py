"""Measure one data set: ours, ours accelerated and the naive engine, interleaved in one process."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from fedrecgel.bench.machine import fma_gflops
from fedrecgel.bench.naive import NaiveEngine
from fedrecgel.channels.base import Plain
from fedrecgel.data.federation import Federation
from fedrecgel.data.load import DataSettings, load_data
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.economies import has_kernel
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.engine.store import ClientStore
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import Problem, Server
from fedrecgel.models.kernels import allow_kernels
from fedrecgel.models.neumf import NeuMF
from fedrecgel.tensors import Ids


@dataclass(frozen=True)
class Case:
    """A data set and how much of it is measured."""

    data: DataSettings
    fraction: float = 0.1
    repetitions: int = 3
    rounds: int = 7
    """Of ours in each repetition, after one of the naive engine."""
    naive_clients: int = 160
    """Clients the naive engine trains, scaled to the cohort; 0 leaves it out."""
    evaluate: bool = True


CASES = {
    "filmtrust": Case(DataSettings("filmtrust")),
    "lastfm-2k": Case(DataSettings("lastfm-2k")),
    "amazon-video": Case(DataSettings("amazon-video"), naive_clients=80),
    "qb-article-shape": Case(
        DataSettings("synthetic", users=24_516, items=7_355, interactions=348_736), rounds=3, naive_clients=80
    ),
    "million": Case(
        DataSettings("synthetic", users=1_000_000, items=100_000, interactions=20_000_000),
        fraction=0.01,
        repetitions=1,
        rounds=3,
        naive_clients=0,
        evaluate=False,
    ),
}
"""The shapes that are compared; `million` is too large for the naive engine and for ranking everyone in a benchmark."""


def flops_per_sample(method: FedRecGEL) -> float:
    """Work of one merged example: base, shared-perturbed and private pass, with the item half of layer 1 gathered."""
    h1, h2, h3 = NeuMF.hidden
    tower = h1 * h2 + h2 * h3
    first = h1 * method.mlp_dim
    base = 3 * tower + 2 * first  # forward, backward, weights; weights and rows of layer 1
    shared = 3 * tower + 3 * first
    private = 2 * tower
    return 2.0 * (base + shared + private)


class Contender:
    """One method in one engine with its own server and store."""

    def __init__(self, method: Method, federation: Federation, workers: int, *, accelerate: bool = False) -> None:
        self.method, self.draws = method, Draws(0)
        problem = Problem(federation.n_clients, federation.n_items)
        self.store = ClientStore(method, problem, self.draws)
        settings = LocalSettings(workers=workers, accelerate=accelerate)
        self.engine = LocalEngine(method, federation, Plain(), self.store, self.draws, settings)
        self.server: Server = method.init_server(problem, self.draws)
        self.round = 0

    def cohort(self) -> Ids:
        """Who trains in the next round."""
        return self.method.cohort(self.server, self.engine.population(), self.round, self.draws)

    def train(self) -> None:
        """One round."""
        trained = self.engine.train(self.server, self.cohort(), self.round)
        with allow_kernels(self.engine.accelerated):
            self.server = self.method.server_update(self.server, trained.inbox, self.round, self.draws)
        self.round += 1

    def samples(self) -> int:
        """Distinct (client, item) pairs of the next round: what is computed after duplicates are merged."""
        federation, cohort = self.engine.federation, self.cohort()
        parts = [cohort[start : start + 1000] for start in range(0, len(cohort), 1000)]
        batches = (federation.batch(ids, self.round, self.draws) for ids in parts)
        return sum(int(batch.row_mask.count_nonzero()) for batch in batches)

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
class Pace:
    """Rounds of one engine: processor seconds on one worker, and how much work they were, since cohorts differ."""

    samples: list[int] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    evaluate: list[float] = field(default_factory=list)

    @property
    def samples_per_second(self) -> float:
        """Median over rounds."""
        return median(samples / seconds for samples, seconds in zip(self.samples, self.train, strict=True))

    def ratio_to(self, faster: Pace) -> float:
        """Median ratio of the seconds of these rounds to those another engine needs for the same samples."""
        pace = faster.samples_per_second
        return median(seconds * pace / samples for samples, seconds in zip(self.samples, self.train, strict=True))


def row_of(ours: Pace, naive: Pace, flops_per_sample: float, peak_gflops: float) -> dict[str, Any]:
    """Medians of one contender, and ratios within this run."""
    pace = ours.samples_per_second
    return {
        "samples": int(median(ours.samples)),
        "train_seconds": median(ours.train),
        "evaluate_seconds": median(ours.evaluate) if ours.evaluate else None,
        "naive_train_seconds": median(naive.train) if naive.train else None,
        "ratio_to_naive": naive.ratio_to(ours) if naive.train else None,
        "samples_per_second": pace,
        "percent_of_peak": 100 * pace * flops_per_sample / 1e9 / peak_gflops,
    }


def measure(case: Case, data_dir: str | None) -> tuple[dict[str, Any], float]:
    """All numbers of one data set, medians on one worker unless a key says otherwise, and a core's peak in GFLOP/s."""
    torch.set_num_threads(1)
    settings = DataSettings(**{**case.data.__dict__, "dir": data_dir})
    split: Split = load_data(settings).split(candidates=99)
    federation = Federation(split)
    method = FedRecGEL(**{**FedRecGEL.variants["released"], "fraction": case.fraction})  # type: ignore[arg-type]
    contenders = {"plain": Contender(method, federation, 1)}
    if has_kernel(method):
        contenders["accelerated"] = Contender(method, federation, 1, accelerate=True)
    for contender in contenders.values():
        contender.train()  # warm up
    rss = peak_rss_gb()
    naive, naive_pace = NaiveEngine(method, federation, contenders["plain"].server.shared), Pace()
    paces, peaks = {name: Pace() for name in contenders}, []
    for _ in range(case.repetitions):
        peaks.append(fma_gflops(repetitions=1))
        if case.naive_clients:
            _naive_round(naive, contenders["plain"], case.naive_clients, naive_pace)
        for name, contender in contenders.items():
            for _ in range(case.rounds):
                paces[name].samples.append(contender.samples())
                paces[name].train.append(cpu_seconds(contender.train))
            if case.evaluate:
                paces[name].evaluate.append(cpu_seconds(contender.evaluate))
    peak = median(peaks)
    same = {"clients": len(contenders["plain"].cohort()), "peak_rss_gb": rss}
    rows = {name: {**same, **row_of(pace, naive_pace, flops_per_sample(method), peak)} for name, pace in paces.items()}
    workers = {name: _two_workers(method, federation, name) for name in contenders} if case.evaluate else {}
    return {**rows["plain"], "accelerated": rows.get("accelerated"), "two_workers_speedup": workers}, peak


def _naive_round(naive: NaiveEngine, beside: Contender, n_clients: int, pace: Pace) -> None:
    """A round of some of the clients that train next, scaled to all of them."""
    cohort = beside.cohort()
    some = spread(cohort, naive.federation.n_examples(cohort), n_clients)
    users = beside.store.read(some)["user"]
    pace.samples.append(beside.samples())
    pace.train.append(cpu_seconds(lambda: naive.train(some, users)) * len(cohort) / len(some))


def spread(cohort: Ids, lengths: Int[Tensor, " C"], n: int) -> Int[Tensor, " S"]:
    """Up to n of the clients, evenly from the longest to the shortest: scaled up, they cost as the cohort does."""
    n = min(n, len(cohort))
    by_length = cohort[torch.argsort(lengths, descending=True)]
    return by_length[((torch.arange(n) + 0.5) * len(cohort) / n).long()]


def _two_workers(method: Method, federation: Federation, name: str) -> float:
    """Wall time of a round on one worker over that of the same round on two."""
    one, two = (Contender(method, federation, workers, accelerate=name == "accelerated") for workers in (1, 2))
    for contender in (one, two):
        contender.train()  # warm up
    return median(wall_seconds(one.train) / wall_seconds(two.train) for _ in range(9))
