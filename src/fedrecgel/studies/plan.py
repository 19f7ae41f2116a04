"""Which runs an experiment needs, which of them are finished, how long the rest may take, and carrying it out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median

from fedrecgel.data.split import Split
from fedrecgel.engine.workers import available_cores
from fedrecgel.errors import FedrecgelError, RunFolderError
from fedrecgel.methods import method_label
from fedrecgel.methods.messages import Need
from fedrecgel.runs.config import Config
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.settings import read_settings
from fedrecgel.runs.train import train_config
from fedrecgel.studies.fingerprints import config_fingerprint, recorded_fingerprint
from fedrecgel.studies.records import Record, ResultsLog, finished_record, is_complete
from fedrecgel.studies.tasks import Task, TrainTask
from fedrecgel.studies.workers import Outcome, run_tasks

PROBE_ROUNDS = 2
SLOWER = 10.0
"""How many times longer than usual a round may take where a server compares whole uploads."""


@dataclass(frozen=True)
class Job:
    """One run of a plan."""

    config: Config

    @property
    def fingerprint(self) -> str:
        """Of its config."""
        return config_fingerprint(self.config)

    @property
    def folder(self) -> str:
        """Where it goes, relative to the experiments' folder."""
        return f"runs/{self.config.default_out.name}-{self.fingerprint[:8]}"

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.config.data.name} {method_label(self.config.method.name)} seed {self.config.run.seed}"


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment, each once, those of a data set together."""

    root: Path
    jobs: tuple[Job, ...]
    earlier: Mapping[str, str] = field(default_factory=dict)
    """Folders in which earlier versions of the package finished runs, by the fingerprint these have now."""

    @classmethod
    def of(cls, root: Path, configs: Iterable[Config]) -> Plan:
        """The distinct runs among these."""
        jobs = {job.fingerprint: job for job in map(Job, configs)}
        known = {job.folder for job in jobs.values()}
        places = [path for path in sorted(root.glob("runs/*")) if path.relative_to(root).as_posix() not in known]
        earlier = {
            mark: path.relative_to(root).as_posix() for path in places if is_complete(path) for mark in _marks(path)
        }
        return cls(root, tuple(sorted(jobs.values(), key=lambda job: job.config.data.name)), earlier)

    def finished(self, job: Job) -> str | None:
        """The complete folder of a run, relative to the experiments' folder; None if there is none."""
        if is_complete(self.root / job.folder):
            return job.folder
        return self.earlier.get(job.fingerprint)

    @property
    def missing(self) -> list[Job]:
        """Runs that are not finished."""
        return [job for job in self.jobs if self.finished(job) is None]


def _marks(folder: Path) -> set[str]:
    """Fingerprints of plans that a finished run answers: with the path it took, or with `auto`, which chose it."""
    try:
        settings = read_settings(RunFolder(folder).config)
    except RunFolderError:
        return set()
    undecided = {**settings, "local": {**settings.get("local", {}), "accelerate": "auto"}}
    return {mark for mark in map(recorded_fingerprint, (settings, undecided)) if mark is not None}


@dataclass(frozen=True)
class Estimate:
    """How long the missing runs may take on one process."""

    seconds: float
    unknown: tuple[str, ...]
    """Data set and method of runs nothing is known about."""


def _rates(records: Iterable[Record]) -> dict[tuple[str, str], float]:
    """Median seconds for each full round of a method on some data, by earlier runs."""
    known: dict[tuple[str, str], list[float]] = {}
    for record in records:
        if record.summary is not None:
            method, rounds = record.config["method"], record.summary["rounds"]
            work = rounds * float(method.get("fraction", 1.0))
            key = (record.config["data"]["name"], method["name"])
            known.setdefault(key, []).append(record.summary["seconds"]["total"] / work)
    return {key: median(values) for key, values in known.items()}


def slowest_first(jobs: Sequence[Job], records: Iterable[Record]) -> list[Job]:
    """In the order that ends soonest on several processes: a long run begun last would keep all others waiting.

    Of what was never run, methods whose server compares whole uploads are taken for the slowest, and those that train
    nothing for the fastest.
    """
    rates = _rates(records)
    usual = median(rates.values()) if rates else 1.0

    def seconds(job: Job) -> float:
        method = job.config.method.build()
        guess = usual * (SLOWER if method.server_needs == Need.EACH else 1.0 if method.kind == "federated" else 0.0)
        rate = rates.get((job.config.data.name, job.config.method.name), guess)
        return rate * job.config.run.rounds * method.fraction

    return sorted(jobs, key=lambda job: -seconds(job))


def estimate(jobs: Sequence[Job], records: Iterable[Record]) -> Estimate:
    """From earlier runs of the same method on the same data: their median time per trained client, times ours."""
    rates = _rates(records)
    seconds, unknown = 0.0, set()
    for job in jobs:
        key = (job.config.data.name, job.config.method.name)
        if key in rates:
            seconds += rates[key] * job.config.run.rounds * job.config.method.build().fraction
        else:
            unknown.add(f"{key[0]} {method_label(key[1])}")
    return Estimate(seconds, tuple(sorted(unknown)))


def probe(job: Job, split: Split) -> float | None:
    """Seconds the run may take, from its first rounds trained in memory; None if they fail."""
    rounds = job.config.run.rounds
    short = min(PROBE_ROUNDS, rounds)
    config = replace(job.config, run=replace(job.config.run, rounds=short))
    started = time.perf_counter()
    try:
        result = train_config(config, split)
    except FedrecgelError:
        return None
    once = time.perf_counter() - started
    a_round = median(line["seconds_train"] for line in result.history)
    an_evaluation = max(line["seconds_evaluate"] for line in result.history)
    return float(once + (rounds - short) * (a_round + an_evaluation / config.evaluation.every))


def carry_out(
    plan: Plan, jobs: int, stop: Event, watch: Callable[[Outcome], None], *, keep_models: bool = False
) -> None:
    """Run the missing jobs of a plan; every one of them, and finished ones not recorded yet, gets its line."""
    record_finished(plan)
    log = ResultsLog(plan.root)
    of_task: dict[str, Job] = {}
    tasks: list[Task] = []
    for job in slowest_first(plan.missing, log.read().values()):
        of_task[str(plan.root / job.folder)] = job
        tasks.append(TrainTask(job.label, _share_cores(job.config, jobs), plan.root / job.folder, keep_models))
    for outcome in run_tasks(tasks, jobs, stop):
        if isinstance(outcome.task, TrainTask) and outcome.status != "interrupted":
            job = of_task[str(outcome.task.folder)]
            failed = Record("failed", job.fingerprint, job.folder, job.config.to_dict(), None, error=outcome.message)
            log.append(_record(plan.root, job, job.folder) if outcome.status == "finished" else failed)
        watch(outcome)


def record_finished(plan: Plan) -> None:
    """A line for every finished run that has none: another command made it, or was killed before it could write."""
    log = ResultsLog(plan.root)
    recorded = log.read()
    for job in plan.jobs:
        known, folder = recorded.get(job.fingerprint), plan.finished(job)
        if folder is not None and (known is None or known.status != "finished"):
            log.append(_record(plan.root, job, folder))


def _share_cores(config: Config, jobs: int) -> Config:
    """The same run with its share of the cores; any number of workers gives the same bits."""
    return replace(config, local=replace(config.local, workers=max(1, available_cores() // jobs)))


def _record(root: Path, job: Job, folder: str) -> Record:
    return finished_record(root, folder, job.fingerprint, job.config.to_dict())
