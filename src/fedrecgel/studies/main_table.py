"""RQ1, the main table: every method on every data set over seeds, beside popularity and the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedrecgel.display.chart import Chart, Differences
from fedrecgel.display.tabular import MARKS, Entry, Table
from fedrecgel.display.text import RAISED
from fedrecgel.errors import ConfigError
from fedrecgel.methods import find_method, method_label
from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import (
    SHOWN,
    Against,
    Cell,
    Row,
    RowPlan,
    Runs,
    configs_of,
    draws_nothing,
    left_out,
    plan_row,
    shown_name,
)
from fedrecgel.studies.experiment import Document, Experiment, Option
from fedrecgel.studies.levels import levels_of
from fedrecgel.studies.pairs import Pair, mark_best, pairs_of
from fedrecgel.studies.plain_words import main_sentences
from fedrecgel.studies.presets import SETTINGS, Assignment, Setting
from fedrecgel.studies.published import SOURCE, caveats_for, published
from fedrecgel.studies.records import Record
from fedrecgel.studies.rows import (
    POPULARITY,
    both_rankings,
    both_rankings_columns,
    difference_line,
    left_out_notes,
    seeds_entry,
    sign_text,
    signs_note,
)
from fedrecgel.studies.statistics import TEST

SEEDS_OF_HELP = "other numbers of seeds for slow ones, as in gpfedrec=2,amazon-video/cofedrec=0; 0 leaves it out"
FAMILY_TEST = (
    f"{TEST}; Holm-corrected over all comparisons with popularity of a data set, ranking and metric, and apart from "
    "these over all pairs of federated methods"
)
SELECTIONS = {
    "last": "the last one",
    "validation": "the best on a validation item, which leaves the training data of every row",
    "test": "the best on the test item, which is cheating",
}
VERSUS = signs_note(POPULARITY)


@dataclass(frozen=True)
class MainTable(Document):
    """The reduced experiment."""

    setting: str
    test: str
    published: str
    caveats: dict[str, list[str]]
    """Of each data set."""
    left_out: dict[str, list[str]]
    """Of each data set: methods without a finished run, on purpose or not."""
    rows: list[Row]
    pairs: list[Pair]

    @property
    def by_dataset(self) -> dict[str, list[Row]]:
        """The rows of each data set."""
        names = dict.fromkeys(row.dataset for row in self.rows)
        return {name: [row for row in self.rows if row.dataset == name] for name in names}

    def tables(self) -> list[Table]:
        """One per data set, and an overview if there are several."""
        groups = self.by_dataset
        overview = [self._overview(groups)] if len(groups) > 1 else []
        return overview + [self._table(dataset, rows) for dataset, rows in groups.items()]

    def _overview(self, groups: Mapping[str, Sequence[Row]]) -> Table:
        """All data sets side by side, popularity first."""
        labels = {row.method: row.label for row in self.rows}
        most = max(len(row.seeds) for row in self.rows)
        lines = []
        for method in sorted(labels, key=lambda method: method != POPULARITY):
            found = [next((row for row in rows if row.method == method), None) for rows in groups.values()]
            centralised = any(row is not None and row.kind == "centralised" for row in found)
            name = Entry(labels[method] + (", centralised" if centralised else ""))
            lines.append([name, *(_overview_entry(row, most) for row in found)])
        notes = [
            f"{' / '.join(SHOWN)} in percent among 99 candidates, mean over seeds; in brackets the published figures. "
            f"A raised number says over how many seeds a method has run where it is less than {most}. {VERSUS}",
            f"Test: {self.test}.",
        ]
        return Table("main-overview", "Every method on every data set", ["method", *groups], lines, notes, self.command)

    def _table(self, dataset: str, rows: Sequence[Row]) -> Table:
        lines = [
            [
                Entry(row.label, hint=row.kind),
                *both_rankings(row),
                seeds_entry(row),
                Entry(f"{row.seconds:.1f}", row.seconds),
                Entry("–" if row.trials is None else str(row.trials), row.trials),
                Entry(row.about, hint=", ".join(row.folders)),
            ]
            for row in rows
        ]
        notes = [
            "Percent, mean ± standard deviation over seeds; in brackets the published figure. Ranked among 99 sampled "
            "candidates; where the column says so, among all items.",
            f"{MARKS} {VERSUS}",
            "Trials: how many sets of values the settings are the best of, on the validation item.",
            f"Reported round: {' or '.join(sorted({SELECTIONS[row.selection] for row in rows}))}.",
            f"Test: {self.test}.",
            f"Published figures: {self.published}, quoted as printed.",
            *left_out_notes(self.left_out.get(dataset)),
            *self.caveats[dataset],
            *(f"Settings: {row.heading}" for row in rows if row.heading),
        ]
        columns = ["method", *both_rankings_columns(), "seeds", "s per run", "trials", "settings"]
        return Table(f"main-{dataset}", f"{dataset}: HR and NDCG of every method", columns, lines, notes, self.command)

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        """How far every method gets, and every method minus popularity, with intervals."""
        charts = []
        for dataset, rows in self.by_dataset.items():
            if (levels := levels_of(rows)) is not None:
                title = f"{dataset}: how far every method gets"
                charts.append(Chart(f"overview-{dataset}", title, levels, self.command, above=f"main-{dataset}"))
            lines = {
                metric: [
                    difference_line(method_label(pair.first), pair.comparison)
                    for pair in sorted(self.pairs, key=lambda pair: -pair.comparison.difference)
                    if pair.is_about(dataset, metric)
                ]
                for metric in SHOWN
            }
            if any(lines.values()):
                content = Differences(
                    "difference from popularity, {metric}",
                    "{metric} minus popularity, points",
                    "← below popularity",
                    "above →",
                    lines,
                )
                title = f"{dataset}: every method minus popularity"
                charts.append(
                    Chart(f"versus-popularity-{dataset}", title, content, self.command, above=f"main-{dataset}")
                )
        return charts

    def findings(self) -> dict[str, list[str]]:
        """Three sentences on each data set: how far, against popularity, against ceilings."""
        return {dataset: main_sentences(rows) for dataset, rows in self.by_dataset.items()}


def _overview_entry(row: Row | None, most: int) -> Entry:
    if row is None:
        return Entry("–")
    cells = [row.cells["candidates"][metric] for metric in SHOWN]
    text = " / ".join(f"{100 * cell.mean:.1f}{sign_text(cell.popularity)}" for cell in cells)
    fewer = len(row.seeds) < most and bool(row.missing_seeds or not draws_nothing(row.method))
    seeds = f" {''.join(RAISED[digit] for digit in str(len(row.seeds)))}" if fewer else ""
    quoted = " / ".join(cell.published.value for cell in cells if cell.published)
    return Entry(text + seeds, cells[0].mean, note=quoted, hint=", ".join(row.folders))


@dataclass(frozen=True)
class MainTableExperiment(Experiment):
    """Every method, and always popularity."""

    name = "main-table"
    help = "every method on every data set, beside popularity and the published figures"
    document = MainTable
    title = "Main table"
    about = "Every method beside popularity and the published figure. Sort by any column; hover a value for its test."
    settings = "tuned"
    options = (Option("--seeds-of", "NAME=N,…", SEEDS_OF_HELP, ""),)
    page_place = 10
    findings_place = 10

    @cached_property
    def setting(self) -> Setting:
        """The one setting of all rows."""
        if len(self.scope.settings) != 1:
            found = ",".join(self.scope.settings)
            raise ConfigError(f"The main table takes one of the settings {', '.join(SETTINGS)}. Found {found}.")
        return self.scope.settings[0]

    @cached_property
    def plans(self) -> list[RowPlan]:
        """Which rows."""
        scope = self.scope
        methods = list(dict.fromkeys((POPULARITY, *scope.methods)))
        scope.presets.check(methods)
        return [
            plan_row(
                scope.presets, dataset, method, self.setting, count, changes=self._validation(dataset), own_splits=True
            )
            for dataset in scope.datasets
            for method in methods
            if (count := self._seeds(dataset, method))
        ]

    def _validation(self, dataset: str) -> list[Assignment]:
        """One split for all rows: if one method's settings hold out a validation item, all do without it."""
        origins = [self.scope.presets.origin(dataset, method, self.setting, 0) for method in self.scope.methods]
        held_out = any(origin.config.split.validation for origin in origins)
        return [("evaluation", "selection", "validation")] if held_out else []

    @cached_property
    def seeds_of(self) -> dict[str, int]:
        """Other numbers of seeds, by method or dataset/method; 0 leaves it out, and the table says so."""
        found = {}
        known = {f"{dataset}/{method}" for dataset in self.scope.datasets for method in self.scope.methods}
        for part in filter(None, self.option("seeds_of").split(",")):
            name, _, count = part.partition("=")
            if name not in {*known, *self.scope.methods}:
                find_method(name.rpartition("/")[2])
            if not count.isdigit():
                raise ConfigError(f"--seeds-of takes NAME=N, as in gpfedrec=2. Found '{part}'.")
            found[name] = int(count)
        return found

    def _seeds(self, dataset: str, method: str) -> int:
        return self.seeds_of.get(f"{dataset}/{method}", self.seeds_of.get(method, self.scope.seeds))

    def configs(self) -> list[Config]:
        """Which runs."""
        return configs_of(self.plans)

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> MainTable:
        """Which numbers: means over seeds, paired tests within each data set and metric, marks where they say so."""
        rows: list[Row] = []
        pairs: list[Pair] = []
        datasets = list(dict.fromkeys(plan.dataset for plan in self.plans))
        for dataset in datasets:
            found = [plan.load(root, records) for plan in self.plans if plan.dataset == dataset]
            present = [runs for runs in found if runs is not None]
            tests = pairs_of(dataset, present)
            pairs += tests
            rows += [_row(runs, tests) for runs in _in_order(present)]
        rows = [mark_best(row, rows, pairs) for row in rows]
        caveats = {name: caveats_for(name) for name in datasets}
        missing = left_out(self.plans, records)
        for dataset in self.scope.datasets:
            unwanted = [method_label(method) for method in self.scope.methods if not self._seeds(dataset, method)]
            missing.setdefault(shown_name(dataset), []).extend(f"{label} (not run)" for label in unwanted)
        return MainTable(command, self.setting, FAMILY_TEST, SOURCE, caveats, missing, rows, pairs)


def _in_order(present: list[Runs]) -> list[Runs]:
    """Federated methods first, references last: the order of the table."""
    order = {"federated": 0, "centralised": 1, "reference": 2}
    return sorted(present, key=lambda runs: order[find_method(runs.plan.method).kind])


def _row(runs: Runs, tests: Sequence[Pair]) -> Row:
    method, dataset = runs.plan.method, runs.plan.dataset
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
        for against, metrics in runs.cells().items()
    }
    return runs.row(cells)
