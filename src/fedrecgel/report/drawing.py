"""Figures for papers, drawn by matplotlib from the same numbers as the page's: PNG, SVG and PDF."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from fedrecgel.display.chart import (
    Chart,
    Contours,
    Curves,
    Difference,
    Differences,
    Level,
    Levels,
    Steps,
    Surfaces,
    by_file,
)
from fedrecgel.display.palette import GREY, dashed
from fedrecgel.display.palette import colour as colour_of
from fedrecgel.display.text import visible
from fedrecgel.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg", "pdf")
REFERENCE = GREY
GOOD, BAD = "#0a7f57", "#c2410c"
FEW = 12
"""So many points are marked one by one."""
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ee",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,  # a name with dollars is a name
    "svg.hashsalt": "fedrecgel",  # the same file from the same numbers
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


def draw_all(charts: Iterable[Chart], folder: Path) -> int:
    """Draw these charts; returns how many they are."""
    named = by_file(charts)
    for name, chart in named.items():
        figure = figure_of(chart)
        for suffix in FORMATS:
            save(figure, folder / f"{name}.{suffix}")
    return len(named)


def figure_of(chart: Chart) -> Figure:
    """A chart as a figure of matplotlib."""
    with mpl.rc_context(STYLE):
        figure = Figure(layout="constrained")
        draw(chart.content, figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format its name ends in, the same bytes each time."""
    undated: dict[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[path.suffix[1:]]
    with mpl.rc_context(STYLE):
        write_atomically(path, lambda place: figure.savefig(place, format=path.suffix[1:], metadata=undated))


@singledispatch
def draw(content: object, figure: Figure) -> None:
    """Draw what a chart shows."""
    raise TypeError(f"{type(content).__name__} is drawn on the page only")


@draw.register
def _curves(content: Curves, figure: Figure) -> None:
    """Panels side by side, popularity dashed."""
    panels = content.panels.values()
    figure.set_size_inches(3.2 * len(panels), 2.6)
    for axes, panel in zip(_row(figure, len(panels)), panels, strict=True):
        for line in panel.lines:
            colour, dash = colour_of(line.colour), "--" if dashed(line.colour) else "-"
            style = f"o{dash}" if len(line.mean) <= FEW else dash
            axes.plot(line.x, line.mean, style, color=colour, label=visible(line.label), markersize=3)
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
        if panel.popularity is not None:
            axes.axhline(panel.popularity, color=REFERENCE, linestyle="--", label="popularity")
        axes.set(xlabel=content.bottom, ylabel=panel.left, xscale="log" if content.logarithmic else "linear")
        if content.logarithmic:  # its own labels are formulas, which are not read here
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    handles, labels = figure.axes[0].get_legend_handles_labels()
    fitting = int(3.2 * len(panels) / (0.6 + 0.075 * max(map(len, labels))))
    columns = max(1, min(5, fitting, len(labels)))
    figure.set_figheight(2.4 + 0.2 * ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


@draw.register
def _differences(content: Differences, figure: Figure) -> None:
    """Differences in points with intervals; filled where the test calls them real."""
    metrics = {metric: rows for metric, rows in content.metrics.items() if rows}
    n_rows = max(len(rows) for rows in metrics.values())
    names = [row.name for rows in metrics.values() for row in rows]
    figure.set_size_inches((2.4 + _width_of(names)) * len(metrics), 0.9 + 0.28 * n_rows)
    for axes, (metric, rows) in zip(_row(figure, len(metrics)), metrics.items(), strict=True):
        axes.axvline(0, color=REFERENCE, linewidth=1)
        colours = [{1: GOOD, -1: BAD, 0: REFERENCE}[row.sign] for row in rows]
        _intervals(axes, rows, [row.name for row in rows], content.ranges[metric], colours)
        axes.set(xlabel=f"{metric}, points")


@draw.register
def _levels(content: Levels, figure: Figure) -> None:
    """Methods below each other, popularity as a line, centralised rankers as squares."""
    n_rows = max(len(rows) for rows in content.panels.values())
    names = [row.name for rows in content.panels.values() for row in rows]
    figure.set_size_inches((2.7 + _width_of(names)) * len(content.panels), 1.0 + 0.26 * n_rows)
    for axes, (name, rows) in zip(_row(figure, len(content.panels)), content.panels.items(), strict=True):
        axes.axvline(content.popularity[name], color=REFERENCE, linestyle="--", linewidth=1)
        names = [f"{row.name}, central" if row.kind == "centralised" else row.name for row in rows]
        _intervals(axes, rows, names, content.ranges[name], [colour_of(row.colour) for row in rows])
        axes.set(xlabel=content.bottom, title=name)


def _width_of(names: Iterable[str]) -> float:
    """Inches that the longest name takes, and never less than one."""
    return max(1.0, *(0.075 * len(visible(name)) for name in names))


def _intervals(
    axes: Axes, rows: Sequence[Difference], names: Sequence[str], shown: tuple[float, float], colours: Sequence[str]
) -> None:
    """A line of interval and middle for each row; an arrow where an interval leaves the axis. Filled: marked."""
    low, high = shown
    axes.set(yticks=range(len(rows)), yticklabels=[visible(name) for name in names])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for place, (row, colour) in enumerate(zip(rows, colours, strict=True)):
        axes.plot([max(row.low, low), min(row.high, high)], [place, place], color=colour)
        for cut, at, arrow in ((row.low < low, low, "<"), (row.high > high, high, ">")):
            if cut:
                axes.plot(at, place, arrow, color=colour, markersize=5, clip_on=False)
        shape = "s" if isinstance(row, Level) and row.kind == "centralised" else "o"
        axes.plot(row.difference, place, shape, color=colour, markerfacecolor=colour if row.sign else "white")
    axes.set_xlim(low, high)


@draw.register
def _steps(content: Steps, figure: Figure) -> None:
    """Lines over a grid, on the left axis or the right one."""
    figure.set_size_inches(3.6, 2.6)
    left = figure.subplots()
    right = left.twinx() if content.right is not None else left
    right.grid(visible=right is left)
    places, one_axis = range(len(content.values)), content.right is None  # two have the colours of their lines
    for line in content.lines:
        axes, colour = right if line.right else left, colour_of(line.colour)
        style = "s--" if line.right else "o-"
        axes.plot(places, line.mean, style, color=colour, markersize=3.5, label=visible(line.name))
        if line.low is not None and line.high is not None:
            axes.fill_between(places, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
        if line.popularity is not None:
            axes.axhline(line.popularity, color=colour, linestyle=":", linewidth=1)
        axes.set_ylabel((content.right or "") if line.right else content.left, color="black" if one_axis else colour)
    names = [value if isinstance(value, str) else f"{value:g}" for value in content.values]
    left.set(xticks=places, xticklabels=names, xlabel=content.bottom)
    if one_axis:
        left.legend(fontsize=7)
    if any(line.popularity is not None for line in content.lines):
        left.set_title("dotted: popularity", fontsize=7, color=REFERENCE)


@draw.register
def _surfaces(content: Surfaces, figure: Figure) -> None:
    """A row of magnitudes for each method."""
    models, magnitudes = content.models, content.magnitudes
    figure.set_size_inches(2.4 * len(magnitudes), 2.5 * len(models))
    for row, model in enumerate(models):
        for column, magnitude in enumerate(magnitudes):
            axes: Any = figure.add_subplot(
                len(models), len(magnitudes), row * len(magnitudes) + column + 1, projection="3d"
            )
            x, y, z = _mesh(model.surfaces[column], magnitude)
            axes.plot_surface(x, y, z, cmap="viridis", linewidth=0.2, edgecolor="#ffffff55")
            axes.set_title(f"{visible(model.method)}, ±{magnitude:g}", fontsize=8)
            axes.tick_params(labelsize=6)


@draw.register
def _contours(content: Contours, figure: Figure) -> None:
    """Surfaces from above."""
    models, magnitudes = content.models, content.magnitudes
    figure.set_size_inches(2.2 * len(magnitudes), 2.0 * len(models))
    panels = figure.subplots(len(models), len(magnitudes), squeeze=False)
    for model, row in zip(models, panels, strict=True):
        for magnitude, grid, axes in zip(magnitudes, model.surfaces, row, strict=True):
            x, y, z = _mesh(grid, magnitude)
            if np.ptp(z[np.isfinite(z)]) > 0:
                axes.contourf(x, y, z, 12, cmap="viridis")
            axes.plot(0, 0, "o", color="#d9480f", markerfacecolor="white", markersize=4)
            axes.grid(visible=False)
            axes.tick_params(labelsize=6)
            axes.set_title(f"{visible(model.method)}, ±{magnitude:g}", fontsize=8)


def _mesh(grid: Sequence[Sequence[float | None]], magnitude: float) -> tuple[Any, Any, Any]:
    steps = np.linspace(-magnitude, magnitude, len(grid))
    x, y = np.meshgrid(steps, steps)
    return x, y, np.array([[np.nan if value is None else value for value in row] for row in grid])


def _row(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])
