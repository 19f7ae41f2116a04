"""RQ2, sensitivity: one radius over the paper's grid, the other fixed, where it may matter and where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrecgel.experiments.cells import Entry, Row, cells_of, compare_runs, entry_of, load_runs, row_of
from fedrecgel.experiments.presets import Presets, Setting
from fedrecgel.experiments.results import Record
from fedrecgel.experiments.statistics import TEST, Comparison, holm
from fedrecgel.methods.fedrecgel import FedRecGEL

METHOD = "fedrecgel"
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
class Planned:
    """A point before it is run."""

    setting: Setting
    radius: str
    value: float
    fixed: float
    entry: Entry


def entries(
    presets: Presets,
    datasets: Sequence[str],
    settings: Sequence[Setting],
    seeds: int,
    grid: Sequence[float] = GRID,
) -> list[Planned]:
    """Which runs: the other radius stays at the data set's own value, which the config files hold."""
    presets.check([METHOD])
    planned = []
    for dataset in datasets:
        for setting in settings:
            base = presets.origin(dataset, METHOD, setting, 0).config.method.build()
            if not isinstance(base, FedRecGEL):
                raise TypeError(f"{METHOD} should be FedRecGEL")
            for radius in RADII:
                fixed = base.rho_co if radius == "rho_ur" else base.rho_ur
                for value in grid:
                    change = ("method", radius, float(value))
                    label = f"{radius} = {value:g}"
                    entry = entry_of(presets, dataset, METHOD, setting, seeds, label=label, changes=[change])
                    planned.append(Planned(setting, radius, float(value), fixed, entry))
    return planned


def reduce(root: Path, planned: Sequence[Planned], records: dict[str, Record], command: str) -> Sensitivity:
    """Which numbers: mean and spread over seeds at each value, and its difference from radius 0."""
    points: list[Point] = []
    popularity: dict[str, dict[str, float]] = {}
    for group in dict.fromkeys((item.entry.dataset, item.setting, item.radius) for item in planned):
        found = {
            item.value: (item, runs)
            for item in planned
            if (item.entry.dataset, item.setting, item.radius) == group
            and (runs := load_runs(root, item.entry, records)) is not None
        }
        tests: dict[float, dict[str, Comparison]] = {value: {} for value in found}
        if 0.0 in found:
            for metric in SHOWN:
                family = {
                    value: comparison
                    for value, (_, runs) in found.items()
                    if value != 0
                    and (comparison := compare_runs(runs, found[0.0][1], "candidates", metric)) is not None
                }
                for (value, comparison), p in zip(family.items(), holm([c.p for c in family.values()]), strict=True):
                    tests[value][metric] = Comparison(**{**vars(comparison), "p_adjusted": p})
        for value, (item, runs) in found.items():
            row = row_of(runs, cells_of(runs))
            points.append(Point(item.setting, item.radius, value, item.fixed, row, tests[value]))
            popularity[item.entry.dataset] = runs.records[0].run["reference"]["popularity"]
    return Sensitivity(command, TEST, points, popularity)
