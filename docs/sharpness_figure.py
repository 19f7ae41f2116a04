"""When do the radii help? NDCG@10 over either radius, against radius 0, from the runs in `results/sharpness`.

`python -m docs.sharpness_figure` draws docs/assets/results/sharpness.svg and prints the table beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from fedrecgel.display.palette import GREY, colour
from fedrecgel.report.collect import collect
from fedrecgel.report.drawing import STYLE, save
from fedrecgel.studies.sensitivity import Point, Sensitivity

HOME = Path(__file__).parents[1]
METRIC = "NDCG@10"
BALLS = {"client": "a ball per client", "item": "a ball per item"}
"""Folders of `results/sharpness`, by `method.balls`, and what the figure calls them."""
RADII = {"rho_co": "shared", "rho_ur": "private"}
Curve = list[Point]


def curves() -> dict[str, dict[str, Curve]]:
    """Points by data set and by what the line is called."""
    found: dict[str, dict[str, Curve]] = {}
    for folder, words in BALLS.items():
        for document in _sensitivities(HOME / "results" / "sharpness" / folder):
            for (dataset, _, radius), points in document.groups.items():
                if radius == "rho_co" or folder == "client":  # the private ball is the same
                    name = f"{RADII[radius]}, {words}" if radius == "rho_co" else RADII[radius]
                    found.setdefault(dataset, {})[name] = sorted(points, key=lambda point: point.value)
    return found


def popularity() -> dict[str, float]:
    """Its level on every data set."""
    documents = _sensitivities(HOME / "results" / "sharpness" / "client")
    return {dataset: of[METRIC] for document in documents for dataset, of in document.popularity.items()}


def _sensitivities(folder: Path) -> Iterable[Sensitivity]:
    return (found for found in collect(folder).documents.get("sensitivity", []) if isinstance(found, Sensitivity))


def draw(found: Mapping[str, Mapping[str, Curve]], levels: Mapping[str, float]) -> Figure:
    """A panel for each data set: points above radius 0, with intervals; dashed, how far popularity is."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.1 * len(found), 3.0), layout="constrained")
        panels = figure.subplots(1, len(found), squeeze=False)[0]
        for axes, (dataset, lines) in zip(panels, found.items(), strict=True):
            zero = 100 * next(iter(lines.values()))[0].row.cells["candidates"][METRIC].mean
            axes.axhline(0, color=GREY, linewidth=1)
            axes.axhline(100 * levels[dataset] - zero, color=GREY, linestyle=":", linewidth=1.2, label="popularity")
            for number, (name, points) in enumerate(lines.items()):
                shown = [point for point in points if METRIC in point.above_zero]
                places = [points.index(point) + 0.12 * (number - 1) for point in shown]
                found_here = [point.above_zero[METRIC] for point in shown]
                middle = [100 * one.difference for one in found_here]
                below = [100 * (one.difference - one.low) for one in found_here]
                above = [100 * (one.high - one.difference) for one in found_here]
                axes.errorbar(
                    [0.0, *places], [0.0, *middle], ([0.0, *below], [0.0, *above]),
                    fmt="o-", color=colour(number), markersize=3.5, linewidth=1.2, elinewidth=1, label=name,
                )  # fmt: skip
            values = [point.value for point in next(iter(lines.values()))]
            axes.set(xticks=range(len(values)), xticklabels=[f"{value:g}" for value in values], xlabel="radius")
            axes.set_title(f"{dataset} ({zero:.1f} at radius 0)", fontsize=9)
        panels[0].set_ylabel(f"{METRIC} minus radius 0, points")
        panels[0].legend(fontsize=7)
    return figure


def table(found: Mapping[str, Mapping[str, Curve]], levels: Mapping[str, float]) -> str:
    """The same in Markdown: NDCG@10 in percent, signs where the test tells a side."""
    signs = {1: " ▲", -1: " ▼", 0: ""}
    lines = ["| | " + " | ".join(found) + " |", "|---" * (1 + len(found)) + "|"]
    lines.append("| popularity | " + " | ".join(f"{100 * levels[dataset]:.2f}" for dataset in found) + " |")
    names = dict.fromkeys(name for of in found.values() for name in of)
    values = dict.fromkeys(point.value for of in found.values() for points in of.values() for point in points)
    for name in names:
        for value in sorted(values):
            cells = []
            for of in found.values():
                point = next((point for point in of.get(name, []) if point.value == value), None)
                mean = None if point is None else 100 * point.row.cells["candidates"][METRIC].mean
                tested = None if point is None else point.above_zero.get(METRIC)
                cells.append("–" if mean is None else f"{mean:.2f}{signs[tested.sign] if tested else ''}")
            lines.append(f"| {name}: {value:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    drawn, known = curves(), popularity()
    save(draw(drawn, known), HOME / "docs" / "assets" / "results" / "sharpness.svg")
    print(table(drawn, known))
