"""What quirks of the released codes are worth: each native option alone, all of them, and a round picked on test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedrecgel.display.tabular import Entry, Table
from fedrecgel.methods import find_method, method_label
from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import (
    AGAINST,
    SHOWN,
    Against,
    Row,
    RowPlan,
    Runs,
    configs_of,
    differences,
    left_out,
    load_group,
    plan_row,
    table_metrics,
)
from fedrecgel.studies.experiment import Document, Experiment, Option, names_in
from fedrecgel.studies.presets import RELEASED, Assignment
from fedrecgel.studies.records import Record
from fedrecgel.studies.rows import (
    ALIKE,
    INTERVALS,
    both_rankings,
    both_rankings_columns,
    compared,
    difference_entry,
    left_out_notes,
    points_text,
    popularity_line,
    seeds_entry,
    signs_note,
)
from fedrecgel.studies.statistics import TEST, Comparison, Verdict

CORRECTED, LEAKY, ALL, PICKED = "corrected", "leaky negatives", "all native", "native defaults, picked on test"
KINDS = ("single", "leaky", "native", "picked")
"""What rows there are beside the corrected one; the first stands for one row per quirk."""
NATIVE = "native"
LEAK: Assignment = ("sampling", "exclude_heldout_from_negatives", True)
SIZES_AND_RATES = ("dim", "lr")
"""Native values that are no quirks; without the others they have no row, but rows of all native options have them."""
FAMILY_TEST = f"{TEST}; Holm-corrected over the rows of a data set, method and metric"


@dataclass(frozen=True)
class QuirkRow:
    """A method with some of its quirks, and what they are worth."""

    row: Row
    worth: dict[Against, dict[str, Comparison]]
    """This row minus the corrected one."""


@dataclass(frozen=True)
class Quirks(Document):
    """The reduced experiment."""

    test: str
    rows: list[QuirkRow]
    popularity: dict[str, dict[Against, dict[str, float]]]
    """Of every data set, on the training data of the corrected rows."""
    left_out: dict[str, list[str]]
    """Of each data set: rows without a finished run."""

    def tables(self) -> list[Table]:
        """One per data set."""
        return [self._table(dataset) for dataset in dict.fromkeys(item.row.dataset for item in self.rows)]

    def _table(self, dataset: str) -> Table:
        lines = [
            [
                Entry(f"{method_label(item.row.method)}, {item.row.label}", hint=", ".join(item.row.folders)),
                *both_rankings(item.row),
                *(difference_entry(compared(item.worth, metric)) for metric in SHOWN),
                seeds_entry(item.row),
            ]
            for item in self.rows
            if item.row.dataset == dataset
        ]
        popularity = self.popularity[dataset]
        lines.append(
            popularity_line(popularity[against].get(metric) for against in AGAINST for metric in table_metrics())
        )
        columns = ["method and quirk", *both_rankings_columns()]
        columns += [*(f"minus corrected, {metric}" for metric in SHOWN), "seeds"]
        notes = [
            f"'{CORRECTED}' has the settings of the main table, over the seeds given here. Other rows change what they "
            f"name and nothing else: '{LEAKY}' never draws a held-out item as a negative, '{ALL}' is this and every "
            f"value of the native variant, rates and sizes included. '{PICKED}' has all this at default instead of "
            "tuned settings, trains on the validation item, too, and reports the best round on the test item, which "
            "is cheating: what some of the released codes do, not each.",
            "Percent, mean ± standard deviation over seeds. Differences in points with interval, adjusted p and "
            f"Cohen's d over users. {INTERVALS} {signs_note(f'the {CORRECTED} row')}",
            f"Test: {self.test}.",
            *left_out_notes(self.left_out.get(dataset)),
        ]
        title = f"{dataset}: what quirks of the released codes are worth"
        return Table(f"quirks-{dataset}", title, columns, lines, notes, self.command)

    def findings(self) -> dict[str, list[str]]:
        """Which quirks change results, which do not, and which were not tested."""
        return {dataset: self._findings(dataset) for dataset in dict.fromkeys(item.row.dataset for item in self.rows)}

    def _findings(self, dataset: str, metric: str = "NDCG@10") -> list[str]:
        worth = [
            (f"{method_label(item.row.method)}, {item.row.label}", comparison)
            for item in self.rows
            if item.row.dataset == dataset and (comparison := compared(item.worth, metric)) is not None
        ]
        words: dict[str, tuple[Verdict, ...]] = {
            f"Quirks that change {metric}, in points": ("above", "below"),
            f"Quirks with {ALIKE}": ("alike",),
            "Open, with intervals": ("open",),
            "Run with too few seeds to test": ("untested",),
        }
        groups = {text: [item for item in worth if item[1].verdict in told] for text, told in words.items()}
        return [
            f"{text}: {'; '.join(f'{name} {points_text(one)}' for name, one in told)}."
            for text, told in groups.items()
            if told
        ]


@dataclass(frozen=True)
class QuirksExperiment(Experiment):
    """For each method the corrected row of the main table, and rows that differ from it in quirks only.

    One row is apart: all native options at default instead of tuned settings, and the round picked on the test item.
    """

    name = "quirks"
    help = "what quirks of the released codes are worth, each against the corrected method"
    document = Quirks
    title = "What quirks are worth"
    about = "Options of the released codes that change results, each against the corrected method."
    settings = None
    options = (Option("--rows", "A,B", f"beside the corrected one (default {','.join(KINDS)})", ",".join(KINDS)),)
    page_place = 20
    findings_place = 40

    @cached_property
    def plans(self) -> dict[tuple[str, str], list[RowPlan]]:
        """Which rows of each data set and method."""
        self.scope.presets.check(self.scope.methods)
        kinds = names_in("row", self.option("rows"), KINDS)
        return {
            (dataset, method): self._rows(dataset, method, kinds)
            for dataset in self.scope.datasets
            for method in self.scope.methods
            if find_method(method).kind == "federated"
        }

    def _rows(self, dataset: str, method: str, kinds: tuple[str, ...]) -> list[RowPlan]:
        native = [LEAK, *_native(method)]
        rows: dict[str, list[Assignment]] = {CORRECTED: []}
        if "single" in kinds:
            rows |= single_quirks(method)
        if "leaky" in kinds:
            rows[LEAKY] = [LEAK]
        if "native" in kinds and _native(method):
            rows[ALL] = native
        validation: Assignment = ("evaluation", "selection", "validation")
        presets, seeds = self.scope.presets, self.scope.seeds
        made = [
            plan_row(presets, dataset, method, "tuned", seeds, label=label, changes=[validation, *changes])
            for label, changes in rows.items()
        ]
        if "picked" in kinds:
            changes = [("evaluation", "selection", "test"), *native]
            made.append(plan_row(presets, dataset, method, "published", seeds, label=PICKED, changes=changes))
        return made

    def configs(self) -> list[Config]:
        """Which runs."""
        return configs_of(plan for group in self.plans.values() for plan in group)

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Quirks:
        """Which numbers: means over seeds, and each row against the corrected one, corrected over a method's rows."""
        rows: list[QuirkRow] = []
        popularity: dict[str, dict[Against, dict[str, float]]] = {}
        for group in self.plans.values():
            found = load_group(root, group, records)
            worth = differences(_pairs(found))
            for label, runs in found.items():
                rows.append(QuirkRow(runs.row(), worth.get(label, {})))
                popularity.setdefault(runs.plan.dataset, _popularity(runs.records[0]))
        missing = left_out((plan for group in self.plans.values() for plan in group), records)
        return Quirks(command, FAMILY_TEST, rows, popularity, missing)


def native_values(method: str) -> dict[str, object]:
    """What the native variant sets otherwise than the released settings, from which every row starts."""
    variants = find_method(method).variants
    released = variants.get(RELEASED, {})
    return {key: value for key, value in variants.get(NATIVE, {}).items() if released.get(key) != value}


def single_quirks(method: str) -> dict[str, list[Assignment]]:
    """The native options of a method one by one, by what they set."""
    return {
        f"{key} = {value}".lower(): [("method", key, value)]
        for key, value in native_values(method).items()
        if key not in SIZES_AND_RATES
    }


def _native(method: str) -> list[Assignment]:
    """The native variant, each of its values on top of a tuned one."""
    native = native_values(method)
    return [("method", "variant", NATIVE), *(("method", key, value) for key, value in native.items())] if native else []


def _pairs(found: dict[str, Runs]) -> dict[str, tuple[Runs, Runs]]:
    if CORRECTED not in found:
        return {}
    return {label: (runs, found[CORRECTED]) for label, runs in found.items() if label != CORRECTED}


def _popularity(record: Record) -> dict[Against, dict[str, float]]:
    candidates = record.run["reference"].get("popularity", {})
    catalogue = record.run["reference_full"].get("popularity")  # None if nothing was ranked among all items
    return {"candidates": candidates, "catalogue": catalogue or {}}
