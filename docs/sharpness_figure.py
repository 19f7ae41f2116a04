"""When do the radii help? NDCG@10 over either radius, against radius 0, from the runs in `results/sharpness`.

`python -m docs.sharpness_figure` draws docs/assets/results/sharpness.svg and prints the table beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from fedrecgel.display.chart import Difference, shown_range
from fedrecgel.display.palette import GREY, colour
from fedrecgel.errors import RunFolderError
from fedrecgel.report.drawing import STYLE, save
from fedrecgel.report.write import opened
from fedrecgel.studies.sensitivity import Point, Sensitivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOME = Path(__file__).parents[1]
RESULTS = HOME / "results" / "sharpness"
METRIC = "NDCG@10"
BALLS = {"client": "shared, a ball per client", "item": "shared, a ball per item"}
"""Folders of `results/sharpness`, by `method.balls`, and the name of the line of rho_co."""
PRIVATE = "private"
BREAKDOWN = 10
"""Points lost by a run that learnt nothing any more: its line leaves the picture, so that others can be read."""
SIGNS = {1: " ▲", -1: " ▼", 0: ""}
Lines = dict[str, list[Point]]


def read() -> tuple[dict[str, Lines], dict[str, float]]:
    """By data set the points of each line; the level of popularity in percent."""
    found: dict[str, Lines] = {}
    levels: dict[str, float] = {}
    for folder, words in BALLS.items():
        for document in _documents(RESULTS / folder):
            levels |= {dataset: 100 * of[METRIC] for dataset, of in document.popularity.items()}
            for (dataset, _, radius), points in document.groups.items():
                if radius == "rho_co" or folder == "client":  # the private ball is the same in both
                    name = words if radius == "rho_co" else PRIVATE
                    found.setdefault(dataset, {})[name] = sorted(points, key=lambda point: point.value)
    return found, levels


def _documents(folder: Path) -> Iterator[Sensitivity]:
    if not folder.is_dir():
        return
    with opened(folder) as found:
        yield from (one for one in found.documents.get("sensitivity", []) if isinstance(one, Sensitivity))


def differences(points: list[Point]) -> list[Difference]:
    """From radius 0, in points."""
    lines = []
    for point in points:
        tested = point.above_zero.get(METRIC)
        middle, low, high = (0.0, 0.0, 0.0) if tested is None else (tested.difference, tested.low, tested.high)
        lines.append(
            Difference(f"{point.value:g}", 100 * middle, 100 * low, 100 * high, tested.sign if tested else 0, [])
        )
    return lines


def mean(point: Point) -> float:
    """In percent."""
    return 100 * point.row.cells["candidates"][METRIC].mean


def draw(found: Mapping[str, Lines], levels: Mapping[str, float]) -> Figure:
    """A panel for each data set: points above radius 0, with intervals; dotted, how far popularity is."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.7 * len(found), 3.1), layout="constrained")
        panels = figure.subplots(1, len(found), squeeze=False)[0]
        for axes, (dataset, lines) in zip(panels, found.items(), strict=True):
            zero = mean(next(iter(lines.values()))[0])
            _panel(axes, lines, levels[dataset] - zero)
            axes.set_title(f"{dataset}: {zero:.1f} at radius 0", fontsize=9)
        panels[0].set_ylabel(f"{METRIC} minus radius 0, points")
        panels[0].legend(fontsize=7)
    return figure


def _panel(axes: Axes, lines: Lines, popularity: float) -> None:
    axes.axhline(0, color=GREY, linewidth=1)
    axes.axhline(popularity, color=GREY, linestyle=":", linewidth=1.2, label="popularity")
    values = sorted({point.value for points in lines.values() for point in points})
    drawn = {name: differences(points) for name, points in lines.items()}
    for number, (name, entries) in enumerate(drawn.items()):
        middles = [entry.difference for entry in entries]
        ends = [
            [entry.difference - entry.low for entry in entries],
            [entry.high - entry.difference for entry in entries],
        ]
        places = [values.index(point.value) + 0.12 * (number - 1) for point in lines[name]]
        axes.errorbar(places, middles, ends, fmt="o-", color=colour(number), markersize=3.5, elinewidth=1, label=name)
    near = [entry for entries in drawn.values() for entry in entries if entry.difference > -BREAKDOWN]
    low, high = shown_range(near, popularity)
    ticks = [f"{value:g}" for value in values]
    axes.set(xticks=range(len(values)), xticklabels=ticks, xlabel="radius", ylim=(low, high))


def table(found: Mapping[str, Lines], levels: Mapping[str, float]) -> str:
    """The same in Markdown: NDCG@10 in percent, signs where the test tells a side."""
    rows = ["| | " + " | ".join(found) + " |", "|---" * (1 + len(found)) + "|"]
    rows.append("| popularity | " + " | ".join(f"{levels[dataset]:.2f}" for dataset in found) + " |")
    for name in dict.fromkeys(name for lines in found.values() for name in lines):
        for value in dict.fromkeys(point.value for lines in found.values() for point in lines.get(name, [])):
            cells = []
            for lines in found.values():
                points = [point for point in lines.get(name, []) if point.value == value]
                cells.append(
                    "".join(f"{mean(point):.2f}{SIGNS[differences([point])[0].sign]}" for point in points) or "–"
                )
            rows.append(f"| {name}: {value:g} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    """Draw and print, or say what is missing."""
    try:
        found, levels = read()
    except RunFolderError as error:
        raise SystemExit(str(error)) from error
    if not found:
        folders = " and ".join(f"'{RESULTS / folder}'" for folder in BALLS)
        raise SystemExit(
            f"{folders} should hold the runs of the figure. There are none: docs/methods/fedrecgel.md has the command "
            f"that makes them."
        )
    save(draw(found, levels), HOME / "docs" / "assets" / "results" / "sharpness.svg")
    print(table(found, levels))


if __name__ == "__main__":
    main()
