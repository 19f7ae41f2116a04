"""RQ2, sensitivity: one radius over the paper's grid, the other fixed, where it may matter and where not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from fedrecgel.runs.config import Config
from fedrecgel.studies.cells import Entry, Row, Runs, cells_of, entry_of, family, load_runs, row_of
from fedrecgel.studies.presets import Presets, Setting
from fedrecgel.studies.records import Record
from fedrecgel.studies.statistics import TEST, Comparison
from fedrecgel.studies.tasks import Task

METHOD = "fedrecgel"
FAMILY_TEST = f"{TEST}; Holm-corrected over the values of a curve and metric"
GRID = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
RADII = ("rho_ur", "rho_co")
SHOWN = ("HR@10", "NDCG@10")


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
class Sensitivity:
    """The reduced experiment."""

    command: str
    test: str
    points: list[Point]
    popularity: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Curve:
    """One radius of one data set at one setting, before it is run."""

    dataset: str
    setting: Setting
    radius: str
    fixed: float
    entries: dict[float, Entry]


@dataclass(frozen=True)
class SensitivityExperiment:
    """Two curves for each data set and setting."""

    name: ClassVar[str] = "sensitivity"

    presets: Presets
    datasets: tuple[str, ...]
    settings: tuple[Setting, ...]
    seeds: int
    grid: tuple[float, ...] = GRID

    @cached_property
    def curves(self) -> list[Curve]:
        """Which points: the other radius stays at the data set's own value, which the config files hold."""
        self.presets.check([METHOD])
        return [
            self._curve(dataset, setting, radius)
            for dataset in self.datasets
            for setting in self.settings
            for radius in RADII
        ]

    def _curve(self, dataset: str, setting: Setting, radius: str) -> Curve:
        base = self.presets.origin(dataset, METHOD, setting, 0).config.to_dict()["method"]
        fixed = base["rho_co"] if radius == "rho_ur" else base["rho_ur"]
        entries = {
            value: entry_of(
                self.presets,
                dataset,
                METHOD,
                setting,
                self.seeds,
                label=f"{radius} = {value:g}",
                changes=[("method", radius, value)],
            )
            for value in self.grid
        }
        return Curve(dataset, setting, radius, fixed, entries)

    def configs(self) -> list[Config]:
        """Which runs."""
        entries = [entry for curve in self.curves for entry in curve.entries.values()]
        return [origin.config for entry in entries for origin in entry.origins]

    def measurements(self, root: Path) -> list[Task]:
        """Nothing beyond training."""
        return []

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Sensitivity:
        """Which numbers: mean and spread over seeds at each value, and its difference from radius 0."""
        points: list[Point] = []
        popularity: dict[str, dict[str, float]] = {}
        for curve in self.curves:
            found = {
                value: runs
                for value, entry in curve.entries.items()
                if (runs := load_runs(root, entry, records)) is not None
            }
            tests = _against_zero(found)
            for value, runs in found.items():
                row = row_of(runs, cells_of(runs))
                points.append(Point(curve.setting, curve.radius, value, curve.fixed, row, tests[value]))
                popularity[row.dataset] = runs.records[0].run["reference"]["popularity"]
        return Sensitivity(command, FAMILY_TEST, points, popularity)


def _against_zero(found: dict[float, Runs]) -> dict[float, dict[str, Comparison]]:
    """Each value minus radius 0; the values of a curve and metric are one family."""
    pairs = {value: (runs, found[0.0]) for value, runs in found.items() if value != 0 and 0.0 in found}
    families = {metric: family(pairs, "candidates", metric) for metric in SHOWN}
    return {value: {metric: of[value] for metric, of in families.items() if value in of} for value in found}
