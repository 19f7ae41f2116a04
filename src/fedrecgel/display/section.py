"""A section of the page: tables and charts in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedrecgel.display.chart import Chart
from fedrecgel.display.tabular import Table


@dataclass(frozen=True)
class SideBySide:
    """Charts next to each other, where the page is wide enough."""

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Folded:
    """Tables behind a line that opens them."""

    summary: str
    tables: Sequence[Table]


Part = Table | Chart | SideBySide | Folded


def in_order(charts: Sequence[Chart], tables: Sequence[Table]) -> list[Part]:
    """Every chart above the table it names; those that name none come first."""
    parts: list[Part] = [chart for chart in charts if not chart.above]
    for table in tables:
        parts += [chart for chart in charts if chart.above == table.name]
        parts.append(table)
    return parts
