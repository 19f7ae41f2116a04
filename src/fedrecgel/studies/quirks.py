"""What quirks of the released codes are worth: each native option alone, all of them, and a round picked on test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from fedrecgel.methods import METHODS
from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import (
    Against,
    Entry,
    Row,
    Runs,
    cells_of,
    differences,
    entry_of,
    left_out,
    load_runs,
    row_of,
)
from fedrecgel.studies.presets import Assignment, Presets
from fedrecgel.studies.records import Record
from fedrecgel.studies.statistics import TEST, Comparison
from fedrecgel.studies.tasks import Task

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
    """This row minus the corrected one; the interval is a bootstrap over users and seeds."""


@dataclass(frozen=True)
class Quirks:
    """The reduced experiment."""

    command: str
    test: str
    rows: list[QuirkRow]
    popularity: dict[str, dict[Against, dict[str, float]]]
    """Of every data set, on the training data of the corrected rows."""
    left_out: dict[str, list[str]]
    """Of each data set: rows without a finished run."""


@dataclass(frozen=True)
class QuirksExperiment:
    """For each method the corrected row of the main table, and rows that differ from it in quirks only.

    One row is apart: all native options at default instead of tuned settings, and the round picked on the test item.
    """

    name: ClassVar[str] = "quirks"

    presets: Presets
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int
    kinds: tuple[str, ...] = KINDS
    """Which rows beside the corrected one."""

    @cached_property
    def entries(self) -> dict[tuple[str, str], list[Entry]]:
        """Which rows of each data set and method."""
        self.presets.check(self.methods)
        return {
            (dataset, method): self._rows(dataset, method)
            for dataset in self.datasets
            for method in self.methods
            if METHODS[method].kind == "federated"
        }

    def _rows(self, dataset: str, method: str) -> list[Entry]:
        native = [LEAK, *_native(method)]
        rows: dict[str, list[Assignment]] = {CORRECTED: []}
        if "single" in self.kinds:
            rows |= single_quirks(method)
        if "leaky" in self.kinds:
            rows[LEAKY] = [LEAK]
        if "native" in self.kinds and _native(method):
            rows[ALL] = native
        validation: Assignment = ("evaluation", "selection", "validation")
        made = [
            entry_of(self.presets, dataset, method, "tuned", self.seeds, label=label, changes=[validation, *changes])
            for label, changes in rows.items()
        ]
        if "picked" in self.kinds:
            changes = [("evaluation", "selection", "test"), *native]
            made.append(entry_of(self.presets, dataset, method, "published", self.seeds, label=PICKED, changes=changes))
        return made

    def configs(self) -> list[Config]:
        """Which runs."""
        return [origin.config for group in self.entries.values() for entry in group for origin in entry.origins]

    def measurements(self, root: Path) -> list[Task]:
        """Nothing beyond training."""
        return []

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Quirks:
        """Which numbers: means over seeds, and each row against the corrected one, corrected over a method's rows."""
        rows: list[QuirkRow] = []
        popularity: dict[str, dict[Against, dict[str, float]]] = {}
        for group in self.entries.values():
            found = {entry.label: runs for entry in group if (runs := load_runs(root, entry, records)) is not None}
            worth = differences(_pairs(found))
            for label, runs in found.items():
                rows.append(QuirkRow(row_of(runs, cells_of(runs)), worth.get(label, {})))
                popularity.setdefault(runs.entry.dataset, _popularity(runs.records[0]))
        missing = left_out((entry for group in self.entries.values() for entry in group), records)
        return Quirks(command, FAMILY_TEST, rows, popularity, missing)


def single_quirks(method: str) -> dict[str, list[Assignment]]:
    """The native options of a method one by one, by what they set."""
    native = METHODS[method].variants.get(NATIVE, {})
    return {
        f"{key} = {value}".lower(): [("method", key, value)]
        for key, value in native.items()
        if key not in SIZES_AND_RATES
    }


def _native(method: str) -> list[Assignment]:
    """The native variant, each of its values on top of a tuned one."""
    native = METHODS[method].variants.get(NATIVE, {})
    return [("method", "variant", NATIVE), *(("method", key, value) for key, value in native.items())] if native else []


def _pairs(found: dict[str, Runs]) -> dict[str, tuple[Runs, Runs]]:
    if CORRECTED not in found:
        return {}
    return {label: (runs, found[CORRECTED]) for label, runs in found.items() if label != CORRECTED}


def _popularity(record: Record) -> dict[Against, dict[str, float]]:
    catalogue = record.run["reference_full"]["popularity"]  # None if nothing was ranked among all items
    return {"candidates": record.run["reference"]["popularity"], "catalogue": catalogue or {}}
