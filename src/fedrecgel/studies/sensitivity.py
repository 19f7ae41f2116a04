"""RQ2, sensitivity: one radius over the paper's grid, the other fixed, where it may matter and where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from fedrecgel.display.chart import Chart, StepLine, Steps
from fedrecgel.display.section import Folded, Part, SideBySide
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.errors import ConfigError
from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import (
    SHOWN,
    Row,
    RowPlan,
    Runs,
    configs_of,
    family,
    plan_row,
)
from fedrecgel.studies.experiment import Document, Experiment, Option
from fedrecgel.studies.presets import Setting
from fedrecgel.studies.records import Record
from fedrecgel.studies.rows import (
    INTERVALS,
    among_candidates,
    difference_entry,
    points_text,
    popularity_line,
    seeds_entry,
    signs_note,
)
from fedrecgel.studies.statistics import TEST, Comparison

METHOD = "fedrecgel"
FAMILY_TEST = f"{TEST}; Holm-corrected over the values of a curve and metric"
GRID = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
RADII = ("rho_ur", "rho_co")


@dataclass(frozen=True)
class Point:
    """One value of one radius."""

    setting: str
    radius: str
    value: float
    fixed: float
    """The other radius."""
    row: Row
    above_zero: dict[str, Comparison]
    """This value minus radius 0 among candidates; corrected over the grid."""


@dataclass(frozen=True)
class Sensitivity(Document):
    """The reduced experiment."""

    test: str
    points: list[Point]
    popularity: dict[str, dict[str, float]]

    @property
    def groups(self) -> dict[tuple[str, str, str], list[Point]]:
        """The points of each data set, setting and radius."""
        found: dict[tuple[str, str, str], list[Point]] = {}
        for point in self.points:
            found.setdefault((point.row.dataset, point.setting, point.radius), []).append(point)
        return found

    def tables(self) -> list[Table]:
        """One per data set, setting and radius."""
        return [self._table(*key, points) for key, points in self.groups.items()]

    def _table(self, dataset: str, setting: str, radius: str, points: Sequence[Point]) -> Table:
        lines = [
            [
                Entry(f"{point.value:g}", point.value, hint=", ".join(point.row.folders)),
                *among_candidates(point.row, SHOWN),
                *(difference_entry(point.above_zero.get(metric)) for metric in SHOWN),
                seeds_entry(point.row),
            ]
            for point in points
        ]
        lines.append(popularity_line(self.popularity[dataset].get(metric) for metric in SHOWN))
        columns = [radius, *SHOWN, *(f"minus {radius} = 0, {metric}" for metric in SHOWN), "seeds"]
        title = f"{dataset}, {setting} settings: {radius}, with {_other(radius)} = {points[0].fixed:g}"
        tested = any(found.verdict != "untested" for point in points for found in point.above_zero.values())
        test = f" Test: {self.test}. {INTERVALS}" if tested else ""
        notes = [f"Percent among 99 candidates.{test} {signs_note('radius 0')}"]
        return Table(f"sensitivity-{dataset}-{setting}-{radius}", title, columns, lines, notes, self.command)

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        """Metrics and losses over each radius."""
        pairs = self._pairs(records)
        return [chart for pair in pairs for chart in pair.charts]

    def parts(self, records: Sequence[Record]) -> list[Part]:
        """The charts of a data set and setting side by side, the tables folded away."""
        return [*self._pairs(records), Folded("All values and tests", self.tables())]

    def _pairs(self, records: Sequence[Record]) -> list[SideBySide]:
        losses = {record.folder: record.generalisation for record in records}
        found: dict[tuple[str, str], list[Chart]] = {}
        for dataset, setting in dict.fromkeys((dataset, setting) for dataset, setting, _ in self.groups):
            for radius in RADII:
                points = sorted(self.groups.get((dataset, setting, radius), ()), key=lambda point: point.value)
                charts = found.setdefault((dataset, setting), [])
                if points:
                    key, title = f"{dataset}-{setting}-{radius}", f"{dataset}, {setting} settings: {radius}"
                    charts.append(Chart(f"sensitivity-{key}", title, self._metrics(points), self.command))
                if points and (content := _losses(points, losses)) is not None:
                    title = f"{dataset}, {setting}: losses over {radius}"
                    charts.append(Chart(f"gap-{key}", title, content, self.command, where="page"))
        return [SideBySide(charts) for charts in found.values()]

    def _metrics(self, points: Sequence[Point]) -> Steps:
        """HR@10 and NDCG@10 over a radius, with the intervals of the differences from radius 0 around its level."""
        reference, lines = self.popularity[points[0].row.dataset], []
        for number, metric in enumerate(SHOWN):
            means = [point.row.cells["candidates"][metric].mean for point in points]
            ends = [_ends(point.above_zero.get(metric)) for point in points]
            lines.append(
                StepLine(
                    metric,
                    [100 * mean for mean in means],
                    number,
                    [100 * (mean + low) for mean, (low, _) in zip(means, ends, strict=True)],
                    [100 * (mean + high) for mean, (_, high) in zip(means, ends, strict=True)],
                    right=number == 1,
                    popularity=100 * reference[metric] if metric in reference else None,
                )
            )
        radius, values = points[0].radius, [point.value for point in points]
        left, right = (f"{metric}, %" for metric in SHOWN)
        return Steps(f"{' and '.join(SHOWN)} over {radius}", radius, values, left, lines, right)

    def findings(self) -> dict[str, list[str]]:
        """Which radii matter against 0, the other as the data set's config has it, in points."""
        told: dict[tuple[str, str, str], list[tuple[str, Comparison]]] = {}
        for point in self.points:
            for metric, comparison in point.above_zero.items():
                names = told.setdefault((point.row.dataset, point.setting, metric), [])
                names.append((f"{point.radius} = {point.value:g} {points_text(comparison)}", comparison))
        found: dict[str, list[str]] = {}
        for (dataset, setting, metric), names in told.items():
            if all(comparison.verdict == "untested" for _, comparison in names):
                sentence = f"The radii were run with too few seeds to test {metric} at the {setting} settings."
            else:
                moved = "; ".join(name for name, comparison in names if comparison.sign) or "none"
                sentence = f"Radii that change {metric} against 0 at the {setting} settings, in points: {moved}."
            found.setdefault(dataset, []).append(sentence)
        return found


def _ends(found: Comparison | None) -> tuple[float, float]:
    """How far an interval reaches below and above its middle; nowhere where nothing was tested."""
    if found is None or found.verdict == "untested":
        return 0.0, 0.0
    return found.low - found.difference, found.high - found.difference


def _losses(points: Sequence[Point], losses: dict[str, dict[str, float] | None]) -> Steps | None:
    """Training and held-out loss over a radius."""
    values, train, heldout = [], [], []
    for point in points:
        known = [item for folder in point.row.folders if (item := losses.get(folder)) is not None]
        if known:
            values.append(point.value)
            train.append(fmean(item["train_loss"] for item in known))
            heldout.append(fmean(item["heldout_loss"] for item in known))
    if not values:
        return None
    radius, lines = points[0].radius, [StepLine("training", train, 2), StepLine("held-out", heldout, 3)]
    return Steps(f"losses over {radius}", radius, values, "loss", lines, digits=4)


def _other(radius: str) -> str:
    return "rho_co" if radius == "rho_ur" else "rho_ur"


@dataclass(frozen=True)
class GridPlan:
    """One radius of one data set at one setting, before it is run."""

    setting: Setting
    radius: str
    fixed: float
    rows: dict[float, RowPlan]


@dataclass(frozen=True)
class SensitivityExperiment(Experiment):
    """Two curves for each data set and setting."""

    name = "sensitivity"
    help = "HR@10 and NDCG@10 over both radii"
    document = Sensitivity
    title = "Sensitivity to the radii"
    about = (
        "One radius over the paper's grid, the other fixed. With five seeds or more bands are 95% intervals of the "
        "difference from radius 0: one that leaves out the level at 0 is a real difference. HR@10 is read on the left "
        "axis, NDCG@10 on the right."
    )
    options = (Option("--grid", "X,Y", "values of the radii (default: the paper's)"),)
    methods = (METHOD,)
    settings = "published,long"
    page_place = 30
    findings_place = 30

    @cached_property
    def grid(self) -> tuple[float, ...]:
        """Values of the radii."""
        text = self.option("grid")
        if text is None:
            return GRID
        try:
            return tuple(float(value) for value in text.split(","))
        except ValueError as error:
            raise ConfigError(f"--grid takes numbers, as in 0,0.02,0.5. Found '{text}'.") from error

    @cached_property
    def plans(self) -> list[GridPlan]:
        """Which points: the other radius stays at the data set's own value, which the config files hold."""
        self.scope.presets.check([METHOD])
        return [
            self._plan(dataset, setting, radius)
            for dataset in self.scope.datasets
            for setting in self.scope.settings
            for radius in RADII
        ]

    def _plan(self, dataset: str, setting: Setting, radius: str) -> GridPlan:
        presets, seeds = self.scope.presets, self.scope.seeds
        fixed = presets.origin(dataset, METHOD, setting, 0).config.to_dict()["method"][_other(radius)]
        rows = {}
        for value in self.grid:
            label, changes = f"{radius} = {value:g}", [("method", radius, value)]
            rows[value] = plan_row(presets, dataset, METHOD, setting, seeds, label=label, changes=changes)
        return GridPlan(setting, radius, fixed, rows)

    def configs(self) -> list[Config]:
        """Which runs."""
        return configs_of(row for plan in self.plans for row in plan.rows.values())

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Sensitivity:
        """Which numbers: mean and spread over seeds at each value, and its difference from radius 0."""
        points: list[Point] = []
        popularity: dict[str, dict[str, float]] = {}
        for plan in self.plans:
            found = {v: runs for v, row in plan.rows.items() if (runs := row.load(root, records)) is not None}
            tests = _against_zero(found)
            for value, runs in found.items():
                row = runs.row()
                points.append(Point(plan.setting, plan.radius, value, plan.fixed, row, tests[value]))
                popularity[row.dataset] = runs.records[0].run["reference"].get("popularity", {})
        return Sensitivity(command, FAMILY_TEST, points, popularity)


def _against_zero(found: dict[float, Runs]) -> dict[float, dict[str, Comparison]]:
    """Each value minus radius 0; the values of a curve and metric are one family."""
    pairs = {value: (runs, found[0.0]) for value, runs in found.items() if value != 0 and 0.0 in found}
    families = {metric: family(pairs, "candidates", metric) for metric in SHOWN}
    return {value: {metric: of[value] for metric, of in families.items() if value in of} for value in found}
