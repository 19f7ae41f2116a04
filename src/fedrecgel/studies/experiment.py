"""Carry out a plan in an experiments' folder: run what is missing, record it, describe data and machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec
import torch

from fedrecgel.data.audit import audit
from fedrecgel.data.split import Split
from fedrecgel.engine.local import available_cores
from fedrecgel.runs.config import Config
from fedrecgel.runs.summary import source_commit
from fedrecgel.storage import write_text
from fedrecgel.studies.cells import shown_name
from fedrecgel.studies.plan import Job, Plan
from fedrecgel.studies.records import Record, ResultsLog, finished_record
from fedrecgel.studies.tasks import Task, TrainTask, split_of
from fedrecgel.studies.workers import Outcome, run_tasks


@runtime_checkable
class Experiment(Protocol):
    """One of the paper's experiments: which runs, which reduction."""

    name: ClassVar[str]

    def configs(self) -> list[Config]:
        """Every run it needs."""

    def measurements(self, root: Path) -> list[Task]:
        """What is still to be measured on trained models."""

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> object:
        """The numbers of its table or figure, made of run folders only."""


def execute(plan: Plan, jobs: int, stop: Event, watch: Callable[[Outcome], None], *, keep_models: bool = False) -> None:
    """Run the missing jobs of a plan; every one of them, and finished ones not recorded yet, gets its line."""
    record_finished(plan)
    log = ResultsLog(plan.root)
    of_task: dict[str, Job] = {}
    tasks: list[Task] = []
    for job in plan.missing:
        of_task[str(plan.root / job.folder)] = job
        tasks.append(TrainTask(job.label, with_workers(job.config, jobs), plan.root / job.folder, keep_models))
    for outcome in run_tasks(tasks, jobs, stop):
        if isinstance(outcome.task, TrainTask) and outcome.status != "interrupted":
            job = of_task[str(outcome.task.folder)]
            failed = Record("failed", job.fingerprint, job.folder, job.config.to_dict(), None, error=outcome.message)
            log.append(_record(plan.root, job) if outcome.status == "finished" else failed)
        watch(outcome)


def record_finished(plan: Plan) -> None:
    """A line for every finished run that has none: another command made it, or was killed before it could write."""
    log = ResultsLog(plan.root)
    recorded = log.read()
    for job in plan.jobs:
        known = recorded.get(job.fingerprint)
        if job.finished(plan.root) and (known is None or known.status != "finished"):
            log.append(_record(plan.root, job))


def with_workers(config: Config, jobs: int) -> Config:
    """The same run with its share of the cores; any number of workers gives the same bits."""
    return replace(config, local=replace(config.local, workers=max(1, available_cores() // jobs)))


def _record(root: Path, job: Job) -> Record:
    return finished_record(root, job.folder, job.fingerprint, job.config.to_dict())


def write_document(path: Path, document: object) -> None:
    """A reduced experiment as JSON, for the report and other programs."""
    write_text(path, msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")


def describe_data(root: Path, configs: Iterable[Config]) -> None:
    """data/<dataset>.json: sizes, what makes results on it easy to misread, and what bounds them."""
    for config in {config.data.name: config for config in configs}.values():
        path = root / "data" / f"{shown_name(config.data.name)}.json"
        if not path.exists():
            write_text(path, json.dumps(data_facts(split_of(config.data, config.split)), indent=1) + "\n")


def data_facts(split: Split) -> dict[str, Any]:
    """What a reader should know about the data behind results."""
    data, found = split.interactions, audit(split)
    return {
        "name": data.name,
        "users": split.n_users,
        "items": split.n_items,
        "interactions": len(data),
        "source": data.source,
        "licence": data.licence,
        "sha256": data.sha256,
        "ties": split.tie_rule,
        "ceiling": 1 - found.heldout_unseen,
        **asdict(found),
    }


def describe_environment(root: Path) -> None:
    """environment.json: the machine of the latest command."""
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "commit": source_commit(),
    }
    write_text(root / "environment.json", json.dumps(facts, indent=1) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
