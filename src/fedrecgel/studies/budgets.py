"""What privacy costs: accuracy against ε, every method through channel `dp`, beside popularity with the same ε."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedrecgel.display.chart import Chart, StepLine, Steps
from fedrecgel.display.section import Folded, Part
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.errors import ConfigError
from fedrecgel.methods import find_method, method_label
from fedrecgel.methods.messages import Need
from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import SHOWN, Row, RowPlan, Runs, configs_of, family, left_out, plan_row
from fedrecgel.studies.colours import colours_of
from fedrecgel.studies.experiment import Document, Experiment, Option
from fedrecgel.studies.presets import Assignment, Presets
from fedrecgel.studies.records import Record
from fedrecgel.studies.rows import POPULARITY, cell_entry, left_out_notes, seeds_entry, signs_note
from fedrecgel.studies.statistics import TEST, Comparison, Verdict

EPSILONS = "inf,16,8,4,2,1"
FAMILY_TEST = f"{TEST}; Holm-corrected over the methods and budgets of a data set and metric"
WITH_NOISE, WITHOUT = "dp", "dp-none"
"""Folders of configs: rates and limits for noise, and rates for none."""
NO_NOISE = " (∞: both without noise)"
UNSURE: dict[Verdict, str] = {"open": "Open", "untested": "Too few seeds to say"}
RUN: tuple[Assignment, ...] = (
    ("run", "channel", "dp"),
    ("dp", "noise", "seed"),  # a run that anybody can repeat; what protects users is a secret
    ("split", "validation", True),  # where rates and limits were chosen
    ("evaluation", "selection", "last"),
    ("evaluation", "every", 10**6),
    ("evaluation", "full", False),
)


@dataclass(frozen=True)
class Point:
    """One method with one budget."""

    epsilon: float | None
    """None for no noise and no limits."""
    noise_multiplier: float
    row: Row
    above_popularity: dict[str, Comparison]
    """This method minus popularity with the same ε, among candidates."""

    @property
    def budget(self) -> str:
        """For people."""
        return budget_text(self.epsilon)


def budget_text(epsilon: float | None) -> str:
    """∞, or the number."""
    return "∞" if epsilon is None else f"{epsilon:g}"


@dataclass(frozen=True)
class Privacy(Document):
    """The reduced experiment."""

    test: str
    delta: float
    points: list[Point]
    left_out: dict[str, list[str]]
    """Of each data set: rows without a finished run."""

    @property
    def by_dataset(self) -> dict[str, list[Point]]:
        """The points of each data set."""
        names = dict.fromkeys(point.row.dataset for point in self.points)
        return {name: [point for point in self.points if point.row.dataset == name] for name in names}

    def tables(self) -> list[Table]:
        """For each data set one with a column per budget, and one with everything."""
        return [table for name in self.by_dataset for table in (self._overview(name), self._details(name))]

    def parts(self, records: Sequence[Record]) -> list[Part]:
        """The figure and the short table of each data set, everything else folded away."""
        found: list[Part] = []
        for chart, name in zip(self.charts(records), self.by_dataset, strict=True):
            found += [chart, self._overview(name), Folded("NDCG@10, noise and settings", [self._details(name)])]
        return found

    def _overview(self, dataset: str, metric: str = "HR@10") -> Table:
        points = self.by_dataset[dataset]
        budgets = list(dict.fromkeys(point.budget for point in points))
        lines = []
        for method in dict.fromkeys(point.row.method for point in points):
            own = {point.budget: point for point in points if point.row.method == method}
            entries = [_entry(own[budget], metric) if budget in own else Entry("–") for budget in budgets]
            lines.append([Entry(method_label(method)), *entries])
        notes = [
            f"{metric} in percent among 99 candidates, mean ± standard deviation over seeds, each with a split of its "
            f"own; the validation item leaves the training data. {signs_note('popularity with the same ε')}",
            f"ε at δ = {self.delta:g} for whole users, noise by a trusted server (channel dp); ∞ has neither noise nor "
            "limits. Rates and limits were chosen on the validation item for ∞ and for one finite ε, which the budget "
            "does not cover.",
            f"Test: {self.test}.",
            *left_out_notes(self.left_out.get(dataset)),
        ]
        title = f"{dataset}: accuracy against ε, in numbers"
        columns = ["method", *(f"ε = {budget}" for budget in budgets)]
        return Table(f"privacy-{dataset}", title, columns, lines, notes, self.command)

    def _details(self, dataset: str) -> Table:
        lines = [
            [
                Entry(method_label(point.row.method), hint=", ".join(point.row.folders)),
                Entry(point.budget, point.epsilon),
                Entry(f"{point.noise_multiplier:.2f}", point.noise_multiplier),
                Entry(str(point.row.rounds), point.row.rounds),
                *(_entry(point, metric) for metric in SHOWN),
                seeds_entry(point.row),
                Entry(f"{point.row.seconds:.1f}", point.row.seconds),
                Entry(point.row.about),
            ]
            for point in self.by_dataset[dataset]
        ]
        columns = ["method", "ε", "noise by limit", "rounds", *SHOWN, "seeds", "s per run", "settings"]
        headings = dict.fromkeys(point.row.heading for point in self.by_dataset[dataset] if point.row.heading)
        notes = [f"Settings: {heading}" for heading in headings]
        title = f"{dataset}: every budget in full"
        return Table(f"privacy-{dataset}-all", title, columns, lines, notes, self.command)

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        """HR@10 of each method over ε: mean and one standard deviation to both sides."""
        return [
            Chart(f"privacy-{name}", f"{name}: accuracy against ε", _steps(points), self.command)
            for name, points in self.by_dataset.items()
        ]

    def findings(self) -> dict[str, list[str]]:
        """Which methods are still above popularity, and at which budgets."""
        return {name: _findings(points) for name, points in self.by_dataset.items()}


def _entry(point: Point, metric: str) -> Entry:
    cell = point.row.cells["candidates"][metric]
    return cell_entry(replace(cell, popularity=point.above_popularity.get(metric)))


def _steps(points: Sequence[Point], metric: str = "HR@10") -> Steps:
    """A line for each method; only budgets that all of them have."""
    methods = list(dict.fromkeys(point.row.method for point in points))
    cells = {(point.row.method, point.budget): point.row.cells["candidates"][metric] for point in points}
    budgets = [
        budget
        for budget in dict.fromkeys(point.budget for point in points)
        if all((method, budget) in cells for method in methods)
    ]
    lines, colours = [], colours_of({method: method for method in methods})
    for method in methods:
        own = [cells[method, budget] for budget in budgets]
        low, high = ([100 * (cell.mean + side * (cell.sd or 0.0)) for cell in own] for side in (-1, 1))
        lines.append(StepLine(method_label(method), [100 * cell.mean for cell in own], colours[method], low, high))
    return Steps(f"{metric} over ε", "ε: less privacy on the left, more on the right", budgets, f"{metric}, %", lines)


def _findings(points: Sequence[Point], metric: str = "HR@10") -> list[str]:
    """What noise of a middling budget leaves of each method, and who is above popularity with the same ε."""
    tested = [(point, point.above_popularity[metric]) for point in points if metric in point.above_popularity]
    return [*_levels(points, metric), _verdicts(tested)] if tested else []


def _verdicts(tested: Sequence[tuple[Point, Comparison]]) -> str:
    """Who is above popularity, for whom that is open, and for whom the seeds are too few; the rest is not above."""
    found: dict[Verdict, dict[str, list[str]]] = {}
    for point, comparison in tested:
        budgets = found.setdefault(comparison.verdict, {})
        budgets.setdefault(method_label(point.row.method), []).append(point.budget)
    same = "popularity with the same ε" + (NO_NOISE if any(point.epsilon is None for point, _ in tested) else "")
    if found.keys() == {"untested"}:
        return f"The seeds are too few to test who is above {same}."
    unsure = [f" {text}: {_told(found[verdict])}." for verdict, text in UNSURE.items() if verdict in found]
    above = f"Above {same}: {_told(found['above'])}." if "above" in found else ""
    none = f"No method is {'surely ' if unsure else ''}above {same}."
    return (above or none) + "".join(unsure)


def _told(budgets_of: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name} at ε = {', '.join(budgets)}" for name, budgets in budgets_of.items())


def _levels(points: Sequence[Point], metric: str) -> list[str]:
    """At the middle of the finite budgets, beside no noise."""
    finite = sorted({point.epsilon for point in points if point.epsilon is not None})
    if not finite:
        return []
    middle = finite[len(finite) // 2]
    shown = {(point.row.method, point.epsilon): point.row.cells["candidates"][metric].mean for point in points}
    names = sorted((name for name, epsilon in shown if epsilon == middle), key=lambda name: -shown[name, middle])
    each = [
        f"{method_label(name)} {100 * shown[name, middle]:.0f}%"
        + (f" ({100 * shown[name, None]:.0f}% without)" if (name, None) in shown else "")
        for name in names
    ]
    return [f"With noise for ε = {middle:g} {metric} is: {', '.join(each)}."]


@dataclass(frozen=True)
class PrivacyExperiment(Experiment):
    """Every method with every budget, and always popularity."""

    name = "privacy"
    help = "accuracy against the budget of differential privacy"
    document = Privacy
    title = "What privacy costs"
    about = (
        "Accuracy against ε of user-level differential privacy: the smaller, the less anybody learns about a user. "
        "Popularity has the same ε; at ∞ nothing has noise. Bands are one standard deviation over seeds."
    )
    options = (Option("--epsilons", "X,Y", f"budgets ε (default {EPSILONS})", EPSILONS),)
    methods = ("fedrecgel", "fedmf", "spectra", "fedncf", POPULARITY)
    settings = None
    usual_seeds = 3
    page_place = 22
    findings_place = 60

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Budgets, in their order."""
        text = self.option("epsilons")
        try:
            found = tuple(dict.fromkeys(float(value) for value in text.split(",")))
        except ValueError:
            found = (math.nan,)
        if not all(value > 0 for value in found):
            raise ConfigError(f"--epsilons takes positive numbers, as in inf,8,1. Found '{text}'.")
        return found

    @cached_property
    def plans(self) -> dict[float, list[RowPlan]]:
        """The rows of every budget."""
        methods = list(dict.fromkeys((*self.scope.methods, POPULARITY)))
        self.scope.presets.check(methods)
        return {
            epsilon: [self._row(dataset, method, epsilon) for dataset in self.scope.datasets for method in methods]
            for epsilon in self.epsilons
        }

    def _row(self, dataset: str, method: str, epsilon: float) -> RowPlan:
        if find_method(method)().server_needs == Need.EACH:
            raise ConfigError(f"Channel dp is for methods that need sums. '{method}' needs every upload.")
        noisy = math.isfinite(epsilon)
        presets: Presets = self.scope.presets
        presets = replace(presets, folder=presets.folder / (WITH_NOISE if noisy else WITHOUT))
        changes = [*RUN, ("dp", "epsilon", epsilon)]
        if not noisy:
            changes += [("dp", "clip", math.inf), ("dp", "clips", {})]
        return plan_row(
            presets,
            dataset,
            method,
            "tuned",
            self.scope.seeds,
            label=f"{method_label(method)}, ε = {budget_text(epsilon if noisy else None)}",
            changes=changes,
            own_splits=True,
        )

    def configs(self) -> list[Config]:
        """Which runs."""
        return configs_of(plan for plans in self.plans.values() for plan in plans)

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Privacy:
        """Which numbers: means over seeds, and the difference from popularity with the same budget."""
        found: dict[tuple[str, str, float], Runs] = {}
        for epsilon, plans in self.plans.items():
            for plan in plans:
                if (runs := plan.load(root, records)) is not None:
                    found[plan.dataset, plan.method, epsilon] = runs
        tests = {metric: _against_popularity(found, metric) for metric in SHOWN}
        points = [
            Point(
                epsilon if math.isfinite(epsilon) else None,
                float(runs.records[0].run["privacy"]["noise_multiplier"]),
                _shown(runs.row()),
                {metric: of[key] for metric in SHOWN if (key := (dataset, method, epsilon)) in (of := tests[metric])},
            )
            for (dataset, method, epsilon), runs in found.items()
        ]
        missing = left_out((plan for plans in self.plans.values() for plan in plans), records)
        delta = next((config.to_dict()["dp"]["delta"] for config in self.configs()), 0.0)
        order = list(dict.fromkeys((*self.scope.methods, POPULARITY)))
        points.sort(key=lambda point: order.index(point.row.method))
        return Privacy(command, FAMILY_TEST, delta, points, missing)


def _against_popularity(
    found: dict[tuple[str, str, float], Runs], metric: str
) -> dict[tuple[str, str, float], Comparison]:
    """Each method minus popularity with the same ε; those of a data set are one family."""
    tested: dict[tuple[str, str, float], Comparison] = {}
    for dataset in dict.fromkeys(dataset for dataset, _, _ in found):
        pairs = {
            key: (runs, found[dataset, POPULARITY, key[2]])
            for key, runs in found.items()
            if key[0] == dataset and key[1] != POPULARITY and (dataset, POPULARITY, key[2]) in found
        }
        tested |= family(pairs, "candidates", metric)
    return tested


def _shown(row: Row) -> Row:
    """Without metrics that no table shows: the file stays small."""
    return replace(row, cells={"candidates": {metric: row.cells["candidates"][metric] for metric in SHOWN}})
