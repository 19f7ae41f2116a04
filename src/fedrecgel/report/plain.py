"""Results of run folders that no experiment made: what each reaches, and which differences are real."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev

from fedrecgel.errors import FedrecgelError
from fedrecgel.report.collect import Collected, Group
from fedrecgel.report.compare import ComparedRow, RunComparison
from fedrecgel.studies.cells import AGAINST, Against, Cell, table_metrics
from fedrecgel.studies.leaks import recorded_leak
from fedrecgel.studies.paired import Configuration, FinishedRun, all_pairs, configurations_of
from fedrecgel.studies.rows import POPULARITY

PLACES: dict[Against, tuple[str, str]] = {
    "candidates": ("metrics", "reference"),
    "catalogue": ("metrics_full", "reference_full"),
}


def plain_results(found: Collected, command: str) -> list[RunComparison]:
    """One for each data set, with tests where users can be compared."""
    return [_result(found, dataset, command) for dataset in dict.fromkeys(group.dataset for group in found.groups)]


def _result(found: Collected, dataset: str, command: str) -> RunComparison:
    groups = [group for group in found.groups if group.dataset == dataset]
    reference = {against: _reference(groups[0], against) for against in AGAINST}
    known = {against: values for against, values in reference.items() if values}
    leak = recorded_leak(record.run for group in groups for record in group.records)
    made = RunComparison(command, dataset, [_row(group) for group in groups], known, [], leak=leak)
    try:
        configurations = [_configuration(found, group) for group in groups]
        return replace(made, pairs=all_pairs(configurations)) if len(groups) > 1 else made
    except FedrecgelError as error:  # other splits, or ranks that are not there
        return replace(made, untested=str(error))


def _configuration(found: Collected, group: Group) -> Configuration:
    runs = [FinishedRun.of(found.root / record.folder) for record in group.records]
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
