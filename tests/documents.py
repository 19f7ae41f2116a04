"""Reduced experiments made by hand."""

from __future__ import annotations

from fedrecgel.studies.cells import Cell, Row, table_metrics
from fedrecgel.studies.main_table import MainTable
from fedrecgel.studies.published import PublishedCell
from fedrecgel.studies.statistics import Comparison

ABOVE = Comparison(difference=0.1, low=0.05, high=0.15, p=0.001, effect=0.3, users=9, seeds=5, p_adjusted=0.002)


def row_of(dataset: str, method: str, mean: float, kind: str = "federated", *, seeds: int = 1) -> Row:
    cell = Cell(mean, None, PublishedCell("91.66", None), ABOVE) if method == "fedncf" else Cell(mean, None)
    return Row(
        dataset=dataset,
        method=method,
        kind=kind,
        label=method,
        about="defaults",
        seeds=list(range(seeds)),
        missing_seeds=[],
        rounds=2,
        selection="last",
        seconds=1.0,
        up=0.0,
        down=0.0,
        leaves_device=[],
        cells={"candidates": dict.fromkeys(table_metrics(), cell)},
        folders=[],
    )


def document_of(*rows: Row) -> MainTable:
    caveats: dict[str, list[str]] = {row.dataset: [] for row in rows}
    return MainTable("command", "tuned", "a test", "a paper", caveats, {}, list(rows), [])
