"""Tests between the rows of a data set, and the marks they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from fedrecgel.methods import find_method
from fedrecgel.studies.cells import AGAINST, Against, Cell, Row, Runs, family, table_metrics
from fedrecgel.studies.rows import POPULARITY
from fedrecgel.studies.statistics import Comparison


@dataclass(frozen=True)
class Pair:
    """One test of the family of a data set and metric."""

    dataset: str
    against: Against
    metric: str
    first: str
    second: str
    comparison: Comparison

    def is_about(self, dataset: str, metric: str) -> bool:
        """Whether it is a method against popularity, among candidates."""
        about = (self.dataset, self.against, self.metric, self.second)
        return about == (dataset, "candidates", metric, POPULARITY)


def pairs_of(dataset: str, present: Sequence[Runs]) -> list[Pair]:
    """All pairs of federated methods, and everybody against popularity: two families for each metric and ranking."""
    federated = [runs for runs in present if find_method(runs.plan.method).kind == "federated"]
    reference = [runs for runs in present if runs.plan.method == POPULARITY]
    versus = [(runs, reference[0]) for runs in present if reference and runs.plan.method != POPULARITY]
    families = [
        {(first.plan.method, second.plan.method): (first, second) for first, second in couples}
        for couples in (list(combinations(federated, 2)), versus)
    ]
    return [
        Pair(dataset, against, metric, *names, comparison)
        for against in AGAINST
        for metric in table_metrics()
        for named in families
        for names, comparison in family(named, against, metric).items()
    ]


def mark_best(row: Row, rows: Sequence[Row], pairs: Sequence[Pair]) -> Row:
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
