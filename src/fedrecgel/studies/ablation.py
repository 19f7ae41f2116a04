"""RQ3, the ablation: sharpness-awareness on one part, on both, on neither, paired over users and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedrecgel.display.chart import Chart, Differences
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import (
    SHOWN,
    Against,
    Cell,
    Row,
    RowPlan,
    Runs,
    configs_of,
    differences,
    left_out,
    load_group,
    plan_row,
    shown_name,
    table_metrics,
)
from fedrecgel.studies.experiment import Document, Experiment
from fedrecgel.studies.presets import Setting
from fedrecgel.studies.published import SOURCE, VARIANTS, caveats_for, published
from fedrecgel.studies.records import Record
from fedrecgel.studies.rows import (
    INTERVALS,
    among_candidates,
    compared,
    difference_entry,
    difference_line,
    left_out_notes,
    points_text,
    popularity_line,
    seeds_entry,
    signs_note,
)
from fedrecgel.studies.statistics import TEST, Comparison

FAMILY_TEST = f"{TEST}; Holm-corrected over the variants of a data set, setting and metric"
METHOD = "fedrecgel"
FULL, NEITHER = "full", "both off"
CHANGES: dict[str, tuple[tuple[str, str, object], ...]] = {
    FULL: (),
    "w/o non-shared": (("method", "rho_ur", 0.0),),
    "w/o shared": (("method", "rho_co", 0.0),),
    NEITHER: (("method", "rho_co", 0.0), ("method", "rho_ur", 0.0)),
}
"""Variants are values of the radii, not other code; both off is FedNCF."""


@dataclass(frozen=True)
class AblationRow:
    """A variant, and how far the full method is above it."""

    setting: str
    row: Row
    above: dict[Against, dict[str, Comparison]]
    """Full minus this variant."""


@dataclass(frozen=True)
class Ablation(Document):
    """The reduced experiment."""

    test: str
    published: str
    caveats: dict[str, list[str]]
    """Of each data set."""
    rows: list[AblationRow]
    popularity: dict[str, dict[str, float]]
    """Of every data set, among candidates."""
    left_out: dict[str, dict[str, list[str]]]
    """By setting, of each data set: variants without a finished run."""

    @property
    def groups(self) -> dict[tuple[str, str], list[AblationRow]]:
        """The rows of each data set and setting."""
        keys = dict.fromkeys((item.row.dataset, item.setting) for item in self.rows)
        return {key: [item for item in self.rows if (item.row.dataset, item.setting) == key] for key in keys}

    def tables(self) -> list[Table]:
        """One per data set and setting."""
        return [self._table(dataset, setting, rows) for (dataset, setting), rows in self.groups.items()]

    def _table(self, dataset: str, setting: str, rows: Sequence[AblationRow]) -> Table:
        lines = [
            [
                Entry(item.row.label, hint=", ".join(item.row.folders)),
                *among_candidates(item.row, table_metrics()),
                *(difference_entry(compared(item.above, metric)) for metric in SHOWN),
                seeds_entry(item.row),
            ]
            for item in rows
        ]
        lines.append(popularity_line(self.popularity[dataset].get(metric) for metric in table_metrics()))
        columns = ["variant", *table_metrics(), *(f"full minus variant, {metric}" for metric in SHOWN), "seeds"]
        notes = [
            "Percent, mean ± standard deviation over seeds; in brackets the published figure. Differences in points "
            f"with interval, adjusted p and Cohen's d over users. {INTERVALS} {signs_note('the variant')}",
            f"Test: {self.test}.",
            *left_out_notes(self.left_out.get(setting, {}).get(dataset)),
            *self.caveats[dataset],
        ]
        title = f"{dataset}, {setting} settings: which part needs SAM"
        return Table(f"ablation-{dataset}-{setting}", title, columns, lines, notes, self.command)

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        """The full method minus each variant, with intervals."""
        charts = []
        for (dataset, setting), rows in self.groups.items():
            lines = {
                metric: [
                    difference_line(item.row.label, found)
                    for item in rows
                    if item.row.label != FULL and (found := compared(item.above, metric)) is not None
                ]
                for metric in SHOWN
            }
            if any(lines.values()):
                content = Differences(
                    "full method minus variant, {metric}",
                    "full minus variant, {metric}, points",
                    "← variant better",
                    "full better →",
                    lines,
                )
                name, title = (
                    f"ablation-{dataset}-{setting}",
                    f"{dataset}, {setting} settings: full method minus variant",
                )
                charts.append(Chart(name, title, content, self.command, above=name))
        return charts

    def findings(self) -> dict[str, list[str]]:
        """Whether SAM helps: full minus both radii off is the same code, settings, users and seeds."""
        metric = "NDCG@10"
        found: dict[str, list[str]] = {}
        for item in self.rows:
            comparison = compared(item.above, metric)
            if item.row.label == NEITHER and comparison is not None:
                found.setdefault(item.row.dataset, []).append(_sentence(item.setting, metric, comparison))
        return found


def _sentence(setting: str, metric: str, found: Comparison) -> str:
    said = {
        "above": "helps",
        "below": "hurts",
        "alike": "makes no clear difference",
        "open": "may help or hurt, which is open",
        "untested": f"was run with too few seeds ({found.seeds}) to say whether it helps",
    }[found.verdict]
    points = points_text(found, interval=True)
    return f"Sharpness-aware training {said} at the {setting} settings ({metric} {points} points)."


@dataclass(frozen=True)
class AblationExperiment(Experiment):
    """Four variants at each setting."""

    name = "ablation"
    help = "sharpness-awareness on one part, on both, on neither"
    document = Ablation
    title = "Ablation"
    about = (
        "Sharpness-awareness switched off for the private part, the shared part, or both; paired over users and seeds."
    )
    methods = (METHOD,)
    settings = "published,long"
    page_place = 40
    findings_place = 20

    @cached_property
    def plans(self) -> dict[tuple[str, Setting], list[RowPlan]]:
        """Which rows of each data set and setting."""
        scope = self.scope
        scope.presets.check([METHOD])
        return {
            (dataset, setting): [
                plan_row(scope.presets, dataset, METHOD, setting, scope.seeds, label=label, changes=changes)
                for label, changes in CHANGES.items()
            ]
            for dataset in scope.datasets
            for setting in scope.settings
        }

    def configs(self) -> list[Config]:
        """Which runs."""
        return configs_of(plan for group in self.plans.values() for plan in group)

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Ablation:
        """Which numbers: means over seeds, and the full method against each variant, corrected over the variants."""
        rows: list[AblationRow] = []
        popularity: dict[str, dict[str, float]] = {}
        caveats = {name: caveats_for(name) for name in map(shown_name, self.scope.datasets)}
        for (_, setting), group in self.plans.items():
            found = load_group(root, group, records)
            variants = [label for label in found if label != FULL] if FULL in found else []
            above = differences({label: (found[FULL], found[label]) for label in variants})
            for label, runs in found.items():
                rows.append(AblationRow(setting, runs.row(_cells(runs, label)), above.get(label, {})))
                popularity[runs.plan.dataset] = runs.records[0].run["reference"].get("popularity", {})
        missing: dict[str, dict[str, list[str]]] = {
            setting: left_out(
                (plan for (_, own), group in self.plans.items() if own == setting for plan in group), records
            )
            for setting in self.scope.settings
        }
        return Ablation(command, FAMILY_TEST, SOURCE, caveats, rows, popularity, missing)


def _cells(runs: Runs, label: str) -> dict[Against, dict[str, Cell]]:
    cells = runs.cells()
    names = VARIANTS.get(label, ())
    cells["candidates"] = {
        metric: replace(cell, published=published("ablation", runs.plan.dataset, names, metric))
        for metric, cell in cells["candidates"].items()
    }
    return cells
