"""RQ4, the loss landscape: surfaces and measured flatness around the models of FedNCF and FedRecGEL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import msgspec

from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import Entry, entry_of, shown_name
from fedrecgel.studies.plan import Job
from fedrecgel.studies.presets import Presets, Setting
from fedrecgel.studies.published import SOURCE, published
from fedrecgel.studies.records import Record
from fedrecgel.studies.tasks import FlatnessTask, Task
from fedrecgel.theory.flatness import Flatness, FlatnessSettings

METHODS_COMPARED = ("fedncf", "fedrecgel")


@dataclass(frozen=True)
class Measured:
    """The flatness of one run."""

    dataset: str
    method: str
    setting: str
    seed: int
    folder: str
    """The run."""
    file: str
    """The measurement."""
    flatness: Flatness

    @property
    def group(self) -> tuple[str, str, str]:
        """What one figure shows."""
        return self.dataset, self.setting, self.flatness.settings.normalisation


@dataclass(frozen=True)
class Landscape:
    """The reduced experiment."""

    command: str
    published: str
    measured: list[Measured]
    published_average: dict[str, dict[str, dict[str, str]]]
    """Data set, method, magnitude: as printed in the paper."""


@dataclass(frozen=True)
class Planned:
    """One measurement to make."""

    setting: Setting
    entry: Entry
    job: Job
    settings: FlatnessSettings

    @property
    def file(self) -> str:
        """Where it goes, relative to the experiments' folder; other settings have another name."""
        mark = sha256(msgspec.json.encode(self.settings)).hexdigest()[:8]
        return f"landscape/{Path(self.job.folder).name}-{mark}.json"

    def task(self, root: Path) -> FlatnessTask:
        """What a worker does."""
        label = f"landscape of {self.job.label}"
        return FlatnessTask(label, self.job.config, root / self.job.folder, root / self.file, self.settings)


@dataclass(frozen=True)
class LandscapeExperiment:
    """Surfaces for the first seed in each normalisation, numbers for all seeds."""

    name: ClassVar[str] = "landscape"

    presets: Presets
    datasets: tuple[str, ...]
    settings: tuple[Setting, ...]
    seeds: int
    flatness: tuple[FlatnessSettings, ...]
    """One for each normalisation."""
    methods: tuple[str, ...] = METHODS_COMPARED

    @cached_property
    def planned(self) -> list[Planned]:
        """Which measurements."""
        self.presets.check(self.methods)
        numbers_only = (replace(self.flatness[0], grid=0),)
        return [
            Planned(setting, entry, Job(origin.config), measure)
            for dataset in self.datasets
            for setting in self.settings
            for method in self.methods
            for entry in [entry_of(self.presets, dataset, method, setting, self.seeds)]
            for number, origin in enumerate(entry.origins)
            for measure in (self.flatness if number == 0 else numbers_only)
        ]

    def configs(self) -> list[Config]:
        """Which runs."""
        return [item.job.config for item in self.planned]

    def measurements(self, root: Path) -> list[Task]:
        """Those that are not there yet, of finished runs."""
        return [item.task(root) for item in self.planned if item.job.finished(root) and not (root / item.file).exists()]

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Landscape:
        """Collect the measurements that exist, and the published averages beside them."""
        measured = []
        for item in self.planned:
            record, path = records.get(item.job.fingerprint), root / item.file
            if record is None or record.status != "finished" or not path.exists():
                continue
            found = msgspec.json.decode(path.read_bytes(), type=Flatness)
            seed = item.job.config.run.seed
            measured.append(
                Measured(item.entry.dataset, item.entry.method, item.setting, seed, record.folder, item.file, found)
            )
        return Landscape(
            command, SOURCE, measured, {name: _published_average(name) for name in map(shown_name, self.datasets)}
        )


def _published_average(dataset: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for method in METHODS_COMPARED:
        for magnitude in ("10", "1", "1e-1", "1e-2", "1e-3", "1e-4"):
            cell = published("landscape_average_loss", dataset, (method,), f"magnitude {magnitude}")
            if cell is not None:
                found.setdefault(method, {})[f"{float(magnitude):g}"] = cell.value
    return found
