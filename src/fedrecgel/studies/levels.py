"""The figure of a data set: every method beside popularity and the ceilings, in both rankings."""

from __future__ import annotations

from collections.abc import Sequence

from fedrecgel.display.chart import Level, Levels
from fedrecgel.studies.cells import Against, Row
from fedrecgel.studies.colours import colours_of
from fedrecgel.studies.rows import POPULARITY, verdict_text

PANELS: dict[Against, str] = {"candidates": "among 100 items", "catalogue": "among all items"}


def levels_of(rows: Sequence[Row], metric: str = "HR@10") -> Levels | None:
    """Levels in percent. Intervals are those of the difference from popularity: one that crosses its line is open."""
    popularity = next((row for row in rows if row.method == POPULARITY), None)
    others = [row for row in rows if row.method != POPULARITY]
    if popularity is None or not others:
        return None
    colours = colours_of({row.label: row.method for row in others})
    panels, lines = {}, {}
    for against, name in PANELS.items():
        if not all(metric in row.cells.get(against, {}) for row in rows):
            continue
        origin = popularity.cells[against][metric].mean
        found = [_level(row, against, metric, origin, colours[row.label]) for row in others]
        panels[name] = sorted(found, key=lambda level: -level.difference)
        lines[name] = 100 * origin
    if not panels:
        return None
    label = f"{metric} of every method beside popularity"
    return Levels(label, f"{metric}, %; dashed: popularity", panels, lines)


def _level(row: Row, against: Against, metric: str, origin: float, colour: int | None) -> Level:
    cell = row.cells[against][metric]
    value, found = 100 * cell.mean, cell.popularity
    details = [(metric, f"{value:.2f}"), ("seeds", str(len(row.seeds))), ("kind", row.kind)]
    if found is None:
        return Level(row.label, value, value, value, 0, details, row.kind, colour)
    low, high = (100 * (origin + end) for end in (found.low, found.high))
    details += [
        ("minus popularity", f"{100 * found.difference:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"),
        ("verdict", verdict_text(found)),
    ]
    return Level(row.label, value, low, high, found.sign, details, row.kind, colour)
