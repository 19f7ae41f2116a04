"""RQ1, the main table: every method on every data set over seeds, beside popularity and the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import ClassVar

from fedrecgel.methods import METHODS
from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import (
    AGAINST,
    METRICS,
    Against,
    Cell,
    Entry,
    Row,
    Runs,
    cells_of,
    entry_of,
    family,
    left_out,
    load_runs,
    row_of,
    shown_name,
)
from fedrecgel.studies.presets import Assignment, Presets, Setting
from fedrecgel.studies.published import SOURCE, caveats_for, published
from fedrecgel.studies.records import Record
from fedrecgel.studies.statistics import TEST, Comparison
from fedrecgel.studies.tasks import Task

POPULARITY = "popularity"
FAMILY_TEST = f"{TEST}; Holm-corrected over all comparisons of a data set and metric"


@dataclass(frozen=True)
class Pair:
    """One test of the family of a data set and metric."""

    dataset: str
    against: Against
    metric: str
    first: str
    second: str
    comparison: Comparison


@dataclass(frozen=True)
class MainTable:
    """The reduced experiment."""

    command: str
    setting: str
    test: str
    published: str
    caveats: dict[str, list[str]]
    """Of each data set."""
    left_out: dict[str, list[str]]
    """Of each data set: methods without a finished run, on purpose or not."""
    rows: list[Row]
    pairs: list[Pair]


@dataclass(frozen=True)
class MainTableExperiment:
    """Every method, and always popularity."""

    name: ClassVar[str] = "main-table"

    presets: Presets
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    setting: Setting
    seeds: int
    seeds_of: Mapping[str, int] = field(default_factory=dict)
    """Other numbers of seeds, by method or dataset/method; 0 leaves it out, and the table says so."""

    @cached_property
    def entries(self) -> list[Entry]:
        """Which rows."""
        methods = list(dict.fromkeys((POPULARITY, *self.methods)))
        self.presets.check(methods)
        return [
            entry_of(self.presets, dataset, method, self.setting, count, changes=self._validation(dataset))
            for dataset in self.datasets
            for method in methods
            if (count := self._seeds(dataset, method))
        ]

    def _validation(self, dataset: str) -> list[Assignment]:
        """One split for all rows: if one method's settings hold out a validation item, all do without it."""
        chosen = [self.presets.origin(dataset, method, self.setting, 0).config for method in self.methods]
        held_out = any(config.split.validation for config in chosen)
        return [("evaluation", "selection", "validation")] if held_out else []

    def _seeds(self, dataset: str, method: str) -> int:
        return self.seeds_of.get(f"{dataset}/{method}", self.seeds_of.get(method, self.seeds))

    def configs(self) -> list[Config]:
        """Which runs."""
        return [origin.config for entry in self.entries for origin in entry.origins]

    def measurements(self, root: Path) -> list[Task]:
        """Nothing beyond training."""
        return []

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> MainTable:
        """Which numbers: means over seeds, paired tests within each data set and metric, marks where they say so."""
        rows: list[Row] = []
        pairs: list[Pair] = []
        datasets = list(dict.fromkeys(entry.dataset for entry in self.entries))
        for dataset in datasets:
            found = [load_runs(root, entry, records) for entry in self.entries if entry.dataset == dataset]
            present = [runs for runs in found if runs is not None]
            tests = _tests(dataset, present)
            pairs += tests
            rows += [_row(runs, tests) for runs in _in_order(present)]
        rows = [_mark(row, rows, pairs) for row in rows]
        caveats = {name: caveats_for(name) for name in datasets}
        missing = left_out(self.entries, records)
        for dataset in self.datasets:
            unwanted = [f"{method} (not run)" for method in self.methods if not self._seeds(dataset, method)]
            missing.setdefault(shown_name(dataset), []).extend(unwanted)
        return MainTable(command, self.setting, FAMILY_TEST, SOURCE, caveats, missing, rows, pairs)


def _in_order(present: list[Runs]) -> list[Runs]:
    """Federated methods first, references last: the order of the table."""
    order = {"federated": 0, "centralised": 1, "reference": 2}
    return sorted(present, key=lambda runs: order[METHODS[runs.entry.method].kind])


def _tests(dataset: str, present: Sequence[Runs]) -> list[Pair]:
    """All pairs of federated methods, and everybody against popularity; each data set and metric is one family."""
    federated = [runs for runs in present if METHODS[runs.entry.method].kind == "federated"]
    reference = [runs for runs in present if runs.entry.method == POPULARITY]
    couples = list(combinations(federated, 2))
    couples += [(runs, reference[0]) for runs in present if reference and runs.entry.method != POPULARITY]
    named = {(first.entry.method, second.entry.method): (first, second) for first, second in couples}
    return [
        Pair(dataset, against, metric, *names, comparison)
        for against in AGAINST
        for metric in METRICS
        for names, comparison in family(named, against, metric).items()
    ]


def _row(runs: Runs, tests: Sequence[Pair]) -> Row:
    method, dataset = runs.entry.method, runs.entry.dataset
    versus = {
        (pair.against, pair.metric): pair.comparison
        for pair in tests
        if pair.first == method and pair.second == POPULARITY
    }
    cells: dict[Against, dict[str, Cell]] = {
        against: {
            metric: replace(
                cell,
                popularity=versus.get((against, metric)),
                published=published("main", dataset, (method,), metric) if against == "candidates" else None,
            )
            for metric, cell in metrics.items()
        }
        for against, metrics in cells_of(runs).items()
    }
    return row_of(runs, cells)


def _mark(row: Row, rows: Sequence[Row], pairs: Sequence[Pair]) -> Row:
    """Best and runner-up among the federated methods, each only if it is really above all that follow."""
    if row.kind != "federated":
        return row
    signs = {
        (pair.dataset, pair.against, pair.metric, *names): sign
        for pair in pairs
        for names, sign in (
            ((pair.first, pair.second), pair.comparison.sign),
            ((pair.second, pair.first), -pair.comparison.sign),
        )
    }
    rivals = [other for other in rows if other.dataset == row.dataset and other.kind == "federated"]
    cells: dict[Against, dict[str, Cell]] = {}
    for against, metrics in row.cells.items():
        cells[against] = {}
        for metric, cell in metrics.items():
            ranked = sorted(
                (other for other in rivals if against in other.cells),
                key=lambda other, against=against, metric=metric: -other.cells[against][metric].mean,  # type: ignore[misc]
            )
            place = [other.method for other in ranked].index(row.method)
            below = [other.method for other in ranked[place + 1 :]]
            beats = below and all(
                signs.get((row.dataset, against, metric, row.method, other), 0) > 0 for other in below
            )
            mark = {0: "best", 1: "second"}.get(place) if beats else None
            cells[against][metric] = replace(cell, mark=mark)  # type: ignore[arg-type]
    return replace(row, cells=cells)
