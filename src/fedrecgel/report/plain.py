"""Results of run folders that no experiment made: what each reaches, and which differences are real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from fedrecgel.errors import FedrecgelError
from fedrecgel.report.compare import ComparedRow, RunComparison
from fedrecgel.studies.cells import AGAINST, Against, Cell, table_metrics
from fedrecgel.studies.leaks import recorded_leak
from fedrecgel.studies.paired import Configuration, FinishedRun, all_pairs, configurations_of
from fedrecgel.studies.rows import POPULARITY

if TYPE_CHECKING:
    from fedrecgel.report.collect import Group

PLACES: dict[Against, tuple[str, str]] = {
    "candidates": ("metrics", "reference"),
    "catalogue": ("metrics_full", "reference_full"),
}


def results_of(root: Path, groups: Sequence[Group]) -> list[RunComparison]:
    """One for each data set, with tests where users can be compared; folders of runs are relative to `root`."""
    datasets = dict.fromkeys(group.dataset for group in groups)
    return [_result(root, dataset, [group for group in groups if group.dataset == dataset]) for dataset in datasets]


def _result(root: Path, dataset: str, groups: Sequence[Group]) -> RunComparison:
    reference = {against: _reference(groups[0], against) for against in AGAINST}
    known = {against: values for against, values in reference.items() if values}
    leak = recorded_leak(record.run for group in groups for record in group.records)
    made = RunComparison("", dataset, [_row(group) for group in groups], known, [], leak=leak)
    try:
        configurations = [_configuration(root, group) for group in groups]
        return replace(made, pairs=all_pairs(configurations)) if len(groups) > 1 else made
    except FedrecgelError as error:  # other splits, or ranks that are not there
        return replace(made, untested=str(error))


def _configuration(root: Path, group: Group) -> Configuration:
    runs = [FinishedRun.of(root / record.folder) for record in group.records]
    return replace(configurations_of(runs, least=1)[0], label=group.label)


def _row(group: Group) -> ComparedRow:
    cells: dict[Against, dict[str, Cell]] = {}
    for against, (place, _) in PLACES.items():
        for metric in table_metrics():
            values = [(record.run.get(place) or {}).get(metric) for record in group.records]
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                spread = stdev(known) if len(known) > 1 else None
                cells.setdefault(against, {})[metric] = Cell(fmean(known), spread)
    seeds = [int(record.run["seed"]) for record in group.records]
    return ComparedRow(group.label, group.method, seeds, [record.folder for record in group.records], cells)


def _reference(group: Group, against: Against) -> dict[str, float]:
    of_all = (group.first.get(PLACES[against][1]) or {}).get(POPULARITY) or {}
    return {name: value for name, value in of_all.items() if value is not None}
