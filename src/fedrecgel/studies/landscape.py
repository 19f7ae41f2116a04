"""RQ4, the loss landscape: surfaces and measured flatness around the models of FedNCF and FedRecGEL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import cast, get_args

import msgspec

from fedrecgel.display.chart import Chart, Contours, ModelSurfaces, Surfaces
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.runs.config import Config
from fedrecgel.storage import read_json
from fedrecgel.studies.cells import plan_row, shown_name
from fedrecgel.studies.experiment import Document, Experiment, Option, names_in
from fedrecgel.studies.plan import Job
from fedrecgel.studies.presets import Setting
from fedrecgel.studies.published import SOURCE, published
from fedrecgel.studies.records import Record, ResultsLog
from fedrecgel.studies.tasks import FlatnessTask, Task
from fedrecgel.theory.flatness import Flatness, FlatnessSettings, Normalisation, Rise

METHODS_COMPARED = ("fedncf", "fedrecgel")
USUAL = FlatnessSettings()


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
class Landscape(Document):
    """The reduced experiment."""

    published: str
    measured: list[Measured]
    published_average: dict[str, dict[str, dict[str, str]]]
    """Data set, method, magnitude: as printed in the paper."""

    @property
    def groups(self) -> dict[tuple[str, str, str], list[Measured]]:
        """Measurements by data set, setting and normalisation."""
        found: dict[tuple[str, str, str], list[Measured]] = {}
        for item in self.measured:
            found.setdefault(item.group, []).append(item)
        return found

    def tables(self) -> list[Table]:
        """For each normalisation the average loss at a distance; for each setting flatness in numbers."""
        tables = [_average_loss(self, group, items) for group, items in self.groups.items()]
        for dataset, setting in dict.fromkeys((item.dataset, item.setting) for item in self.measured):
            items = [item for item in self.measured if (item.dataset, item.setting) == (dataset, setting)]
            once = {(item.method, item.seed): item for item in reversed(items)}  # as often as there are normalisations
            tables.append(_flatness(self, dataset, setting, list(once.values())[::-1]))
        return tables

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        """Surfaces of both methods at every magnitude; contours only for papers, as the page has them below."""
        charts = []
        for group, items in self.groups.items():
            drawn = [item for item in items if item.flatness.surfaces]
            if drawn:
                magnitudes = [surface.magnitude for surface in drawn[0].flatness.surfaces]
                models = [
                    ModelSurfaces(item.method, item.flatness.loss, [surface.loss for surface in item.flatness.surfaces])
                    for item in drawn
                ]
                title = "{}, {} settings, {} normalisation".format(*group)
                surfaces, contours = Surfaces(magnitudes, models), Contours(magnitudes, models)
                charts.append(Chart("-".join(("landscape", *group)), title, surfaces, self.command))
                charts.append(Chart("-".join(("contours", *group)), title, contours, self.command, where="paper"))
        return charts


def _average_loss(document: Landscape, group: tuple[str, str, str], items: Sequence[Measured]) -> Table:
    dataset, setting, normalisation = group
    drawn = [item for item in items if item.flatness.surfaces]
    lines = []
    for item in drawn:
        quoted = document.published_average.get(dataset, {}).get(item.method, {})
        cells = [
            Entry(
                "∞" if found.average is None else f"{found.average:.4f}",
                found.average,
                note=f"paper {quoted[key]}" if (key := f"{found.magnitude:g}") in quoted else "",
                hint=item.file,
            )
            for found in item.flatness.surfaces
        ]
        lines.append([Entry(item.method), Entry(f"{item.flatness.loss:.4f}", item.flatness.loss), *cells])
    magnitudes = [f"{found.magnitude:g}" for found in drawn[0].flatness.surfaces] if drawn else []
    settings = items[0].flatness.settings
    notes = [
        f"Mean training loss on a {settings.grid} × {settings.grid} grid over [-m, m]² along two random directions "
        f"({normalisation} normalisation) in the space of shared tensors; {settings.clients} clients, seed "
        f"{items[0].seed}.",
        "The published magnitudes name neither directions nor normalisation: orders of magnitude, not a target.",
    ]
    title = f"{dataset}, {setting} settings, {normalisation} normalisation: average loss at a distance"
    columns = ["method", "at the model", *magnitudes]
    return Table("-".join(("loss", *group)), title, columns, lines, notes, document.command)


def _flatness(document: Landscape, dataset: str, setting: str, items: Sequence[Measured]) -> Table:
    radii = [rise.radius for rise in items[0].flatness.rises]
    shown = [radius for radius in radii if radius in (0.02, 0.1, 1.0)]
    lines = []
    for method in dict.fromkeys(item.method for item in items):
        of_method = [item.flatness for item in items if item.method == method]
        lines.append(
            [
                Entry(method, hint=", ".join(item.folder for item in items if item.method == method)),
                _mean_entry(found.loss for found in of_method),
                _mean_entry(found.eigenvalue for found in of_method),
                *(_mean_entry(_rise(found, radius).mean for found in of_method) for radius in shown),
                *(_mean_entry(_rise(found, radius).worst for found in of_method) for radius in shown),
                Entry(str(len(of_method)), len(of_method)),
            ]
        )
    columns = ["method", "loss", "top Hessian eigenvalue λ"]
    columns += [f"expected rise, ρ = {radius:g}" for radius in shown]
    columns += [f"worst rise, ρ = {radius:g}" for radius in shown]
    notes = [
        "Mean ± standard deviation over seeds, all over the shared tensors. λ by power iteration on exact "
        "Hessian-vector products; expected rise over random unit directions; worst rise along the gradient, as SAM "
        "looks for it.",
    ]
    title = f"{dataset}, {setting} settings: flatness in numbers"
    return Table(f"flatness-{dataset}-{setting}", title, [*columns, "seeds"], lines, notes, document.command)


def _rise(found: Flatness, radius: float) -> Rise:
    return next(rise for rise in found.rises if rise.radius == radius)


def _mean_entry(values: Iterable[float]) -> Entry:
    found = list(values)
    mean = sum(found) / len(found)
    if len(found) == 1:
        return Entry(f"{mean:.3g}", mean)
    sd = (sum((value - mean) ** 2 for value in found) / (len(found) - 1)) ** 0.5
    return Entry(f"{mean:.3g} ± {sd:.1g}", mean)


@dataclass(frozen=True)
class MeasurementPlan:
    """One measurement to make."""

    dataset: str
    method: str
    setting: Setting
    job: Job
    settings: FlatnessSettings

    @property
    def file(self) -> str:
        """Where it goes, relative to the experiments' folder; other settings have another name."""
        mark = sha256(msgspec.json.encode(self.settings)).hexdigest()[:8]
        return f"landscape/{Path(self.job.folder).name}-{mark}.json"

    def task(self, root: Path, run: Record) -> FlatnessTask:
        """What a worker does."""
        label = f"landscape of {self.job.label}"
        return FlatnessTask(label, self.job.config, root / run.folder, root / self.file, self.settings)


@dataclass(frozen=True)
class LandscapeExperiment(Experiment):
    """Surfaces for the first seed in each normalisation, numbers for all seeds."""

    name = "landscape"
    help = "the loss around the models of FedNCF and FedRecGEL"
    document = Landscape
    title = "Loss landscape"
    about = (
        "The training loss around each model along two random directions in the space of shared tensors. Drag a "
        "surface to rotate it; both turn together. The white dot is the model."
    )
    options = (
        Option("--normalisation", "NAME", "of the random directions, of unit, filter", "unit,filter"),
        Option("--grid-points", "N", f"per axis of a surface (default {USUAL.grid})", USUAL.grid),
        Option("--clients", "N", f"whose examples are the loss (default {USUAL.clients})", USUAL.clients),
    )
    methods = METHODS_COMPARED
    usual_seeds = 3
    page_place = 50

    @cached_property
    def flatness(self) -> tuple[FlatnessSettings, ...]:
        """What is measured: one for each normalisation."""
        kinds = names_in("normalisation", self.option("normalisation"), get_args(Normalisation))
        grid, clients = self.option("grid_points"), self.option("clients")
        return tuple(FlatnessSettings(cast("Normalisation", kind), grid=grid, clients=clients) for kind in kinds)

    @cached_property
    def plans(self) -> list[MeasurementPlan]:
        """Which measurements."""
        scope = self.scope
        scope.presets.check(scope.methods)
        numbers_only = (replace(self.flatness[0], grid=0),)
        return [
            MeasurementPlan(row.dataset, method, setting, Job(origin.config), measure)
            for dataset in scope.datasets
            for setting in scope.settings
            for method in scope.methods
            for row in [plan_row(scope.presets, dataset, method, setting, scope.seeds)]
            for number, origin in enumerate(row.origins)
            for measure in (self.flatness if number == 0 else numbers_only)
        ]

    def configs(self) -> list[Config]:
        """Which runs."""
        return [plan.job.config for plan in self.plans]

    def measurements(self, root: Path) -> list[Task]:
        """Those that are not there yet, of finished runs."""
        records = ResultsLog(root).read()
        missing = ((plan, records.get(plan.job.fingerprint)) for plan in self.plans if not (root / plan.file).exists())
        return [plan.task(root, run) for plan, run in missing if run is not None and run.status == "finished"]

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Landscape:
        """Collect the measurements that exist, and the published averages beside them."""
        measured = []
        for plan in self.plans:
            record, path = records.get(plan.job.fingerprint), root / plan.file
            if record is None or record.status != "finished" or not path.exists():
                continue
            found = read_json(path, Flatness)
            seed = plan.job.config.run.seed
            measured.append(Measured(plan.dataset, plan.method, plan.setting, seed, record.folder, plan.file, found))
        averages = {name: _published_average(name) for name in map(shown_name, self.scope.datasets)}
        return Landscape(command, SOURCE, measured, averages)


def _published_average(dataset: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for method in METHODS_COMPARED:
        for magnitude in ("10", "1", "1e-1", "1e-2", "1e-3", "1e-4"):
            cell = published("landscape_average_loss", dataset, (method,), f"magnitude {magnitude}")
            if cell is not None:
                found.setdefault(method, {})[f"{float(magnitude):g}"] = cell.value
    return found
