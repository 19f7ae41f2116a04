"""RQ3, the ablation: sharpness-awareness on one part, on both, on neither, paired over users and seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import (
    Against,
    Cell,
    Entry,
    Row,
    Runs,
    cells_of,
    differences,
    entry_of,
    left_out,
    load_runs,
    row_of,
    shown_name,
)
from fedrecgel.studies.presets import Presets, Setting
from fedrecgel.studies.published import SOURCE, VARIANTS, caveats_for, published
from fedrecgel.studies.records import Record
from fedrecgel.studies.statistics import TEST, Comparison
from fedrecgel.studies.tasks import Task

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
    """Full minus this variant; the interval is a bootstrap over users and seeds."""


@dataclass(frozen=True)
class Ablation:
    """The reduced experiment."""

    command: str
    test: str
    published: str
    caveats: dict[str, list[str]]
    """Of each data set."""
    rows: list[AblationRow]
    popularity: dict[str, dict[str, float]]
    """Of every data set, among candidates."""
    left_out: dict[str, dict[str, list[str]]]
    """By setting, of each data set: variants without a finished run."""


@dataclass(frozen=True)
class AblationExperiment:
    """Four variants at each setting."""

    name: ClassVar[str] = "ablation"

    presets: Presets
    datasets: tuple[str, ...]
    settings: tuple[Setting, ...]
    seeds: int

    @cached_property
    def entries(self) -> dict[tuple[str, Setting], list[Entry]]:
        """Which rows of each data set and setting."""
        self.presets.check([METHOD])
        return {
            (dataset, setting): [
                entry_of(self.presets, dataset, METHOD, setting, self.seeds, label=label, changes=changes)
                for label, changes in CHANGES.items()
            ]
            for dataset in self.datasets
            for setting in self.settings
        }

    def configs(self) -> list[Config]:
        """Which runs."""
        return [origin.config for group in self.entries.values() for entry in group for origin in entry.origins]

    def measurements(self, root: Path) -> list[Task]:
        """Nothing beyond training."""
        return []

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Ablation:
        """Which numbers: means over seeds, and the full method against each variant, corrected over the variants."""
        rows: list[AblationRow] = []
        popularity: dict[str, dict[str, float]] = {}
        caveats = {shown_name(dataset): caveats_for(shown_name(dataset)) for dataset in self.datasets}
        for (_, setting), group in self.entries.items():
            found = {entry.label: runs for entry in group if (runs := load_runs(root, entry, records)) is not None}
            variants = [label for label in found if label != FULL] if FULL in found else []
            above = differences({label: (found[FULL], found[label]) for label in variants})
            for label, runs in found.items():
                rows.append(AblationRow(setting, row_of(runs, _cells(runs, label)), above.get(label, {})))
                popularity[runs.entry.dataset] = runs.records[0].run["reference"]["popularity"]
        missing: dict[str, dict[str, list[str]]] = {
            setting: left_out((e for (_, own), group in self.entries.items() if own == setting for e in group), records)
            for setting in self.settings
        }
        return Ablation(command, FAMILY_TEST, SOURCE, caveats, rows, popularity, missing)


def _cells(runs: Runs, label: str) -> dict[Against, dict[str, Cell]]:
    cells = cells_of(runs)
    names = VARIANTS.get(label, ())
    cells["candidates"] = {
        metric: replace(cell, published=published("ablation", runs.entry.dataset, names, metric))
        for metric, cell in cells["candidates"].items()
    }
    return cells
