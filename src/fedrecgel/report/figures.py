"""Figures for papers, drawn by matplotlib from the same numbers as the page's: PNG, SVG and PDF."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fedrecgel.report import figure_data
from fedrecgel.report.collect import Collected
from fedrecgel.report.figure_data import Values
from fedrecgel.storage import write_atomically
from fedrecgel.studies.sensitivity import RADII

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg", "pdf")
COLOURS = ("#3557e0", "#d9480f", "#0a8f6a", "#b5179e", "#9a6b00", "#0284a8", "#7048e8", "#c92a4b", "#5f7a1f", "#7a5c48")
REFERENCE = "#6b7280"
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
    "svg.hashsalt": "fedrecgel",  # the same file from the same numbers
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


def draw_all(found: Collected, folder: Path) -> int:
    """Draw every figure the results allow; returns how many."""
    drawn = 0
    with mpl.rc_context(STYLE):
        for name, draw, values in _figures(found):
            figure = Figure(layout="constrained")
            draw(figure, values)
            for suffix in FORMATS:
                _save(figure, folder / f"{name}.{suffix}")
            drawn += 1
    return drawn


def _save(figure: Figure, path: Path) -> None:
    undated: dict[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[path.suffix[1:]]
    write_atomically(path, lambda place: figure.savefig(place, format=path.suffix[1:], metadata=undated))


Drawing = tuple[str, Callable[[Figure, Values], None], Values]


def _figures(found: Collected) -> list[Drawing]:
    """Name, how to draw, and the numbers."""
    figures: list[Drawing] = []

    def add(name: str, draw: Callable[[Figure, Values], None], values: Values | None) -> None:
        if values is not None:
            figures.append((name, draw, values))

    for dataset in dict.fromkeys(group.dataset for group in found.groups):
        add(f"curves-{dataset}", draw_curves, figure_data.curves(found, dataset))
        if found.main is not None:
            add(f"versus-popularity-{dataset}", draw_differences, figure_data.versus_popularity(found.main, dataset))
    if found.sensitivity is not None:
        keys = dict.fromkeys((point.row.dataset, point.setting) for point in found.sensitivity.points)
        for dataset, setting in keys:
            for radius in RADII:
                points = figure_data.points_of(found.sensitivity, dataset, setting, radius)
                if points:
                    values = figure_data.sensitivity(found.sensitivity, points)
                    add(f"sensitivity-{dataset}-{setting}-{radius}", draw_sensitivity, values)
    if found.ablation is not None:
        for dataset, setting in dict.fromkeys((item.row.dataset, item.setting) for item in found.ablation.rows):
            values_of = figure_data.ablation(found.ablation, dataset, setting)
            add(f"ablation-{dataset}-{setting}", draw_differences, values_of)
    if found.landscape is not None:
        for group in dict.fromkeys(item.group for item in found.landscape.measured):
            surfaces = figure_data.landscape(found.landscape, group)
            add("-".join(("landscape", *group)), draw_surfaces, surfaces)
            add("-".join(("contours", *group)), draw_contours, surfaces)
    return figures


def draw_curves(figure: Figure, values: Values) -> None:
    """Metrics over rounds, side by side, popularity dashed."""
    metrics = values["metrics"]
    figure.set_size_inches(3.2 * len(metrics), 2.6)
    for axes, (metric, series) in zip(_row(figure, len(metrics)), metrics.items(), strict=True):
        scale = 1 if metric == "loss" else 100
        for colour, line in zip(_colours(len(series)), series, strict=True):
            low, mean, high = (scale * np.array(line[name]) for name in ("low", "mean", "high"))
            style = "o-" if len(mean) <= FEW else "-"
            axes.plot(line["rounds"], mean, style, color=colour, label=line["label"], markersize=3)
            axes.fill_between(line["rounds"], low, high, color=colour, alpha=0.15, linewidth=0)
        if metric in values["popularity"]:
            axes.axhline(scale * values["popularity"][metric], color=REFERENCE, linestyle="--", label="popularity")
        axes.set(xlabel="round", ylabel="training loss" if metric == "loss" else f"{metric}, %")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)))


def draw_differences(figure: Figure, values: Values) -> None:
    """Differences in points with intervals; filled where the test calls them real."""
    metrics = {metric: rows for metric, rows in values.items() if rows}
    n_rows = max(len(rows) for rows in metrics.values())
    figure.set_size_inches(3.4 * len(metrics), 0.9 + 0.28 * n_rows)
    for axes, (metric, rows) in zip(_row(figure, len(metrics)), metrics.items(), strict=True):
        axes.axvline(0, color=REFERENCE, linewidth=1)
        for place, row in enumerate(rows):
            colour = {1: "#0a7f57", -1: "#c2410c", 0: REFERENCE}[row["sign"]]
            axes.plot([row["low"], row["high"]], [place, place], color=colour)
            axes.plot(row["difference"], place, "o", color=colour, markerfacecolor=colour if row["sign"] else "white")
        axes.set(yticks=range(len(rows)), yticklabels=[row["name"] for row in rows], xlabel=f"{metric}, points")
        axes.set_ylim(len(rows) - 0.5, -0.5)


def draw_sensitivity(figure: Figure, values: Values) -> None:
    """HR@10 on the left axis, NDCG@10 on the right one."""
    figure.set_size_inches(3.6, 2.6)
    left = figure.subplots()
    right = left.twinx()
    right.grid(visible=False)
    places = range(len(values["values"]))
    for axes, metric, colour, style in ((left, "HR@10", COLOURS[0], "o-"), (right, "NDCG@10", COLOURS[1], "s--")):
        found = {name: 100 * np.array(series) for name, series in values["metrics"][metric].items()}
        axes.plot(places, found["mean"], style, color=colour, markersize=3.5)
        axes.fill_between(places, found["low"], found["high"], color=colour, alpha=0.15, linewidth=0)
        axes.axhline(100 * values["popularity"][metric], color=colour, linestyle=":", linewidth=1)
        axes.set_ylabel(f"{metric}, %", color=colour)
    left.set(xticks=places, xticklabels=[f"{value:g}" for value in values["values"]], xlabel=values["radius"])
    left.set_title("dotted: popularity", fontsize=7, color=REFERENCE)


def draw_surfaces(figure: Figure, values: Values) -> None:
    """A row of magnitudes for each method."""
    models, magnitudes = values["models"], values["magnitudes"]
    figure.set_size_inches(2.4 * len(magnitudes), 2.5 * len(models))
    for row, model in enumerate(models):
        for column, magnitude in enumerate(magnitudes):
            axes: Any = figure.add_subplot(
                len(models), len(magnitudes), row * len(magnitudes) + column + 1, projection="3d"
            )
            x, y, z = _mesh(model["surfaces"][column], magnitude)
            axes.plot_surface(x, y, z, cmap="viridis", linewidth=0.2, edgecolor="#ffffff55")
            axes.set_title(f"{model['method']}, ±{magnitude:g}", fontsize=8)
            axes.tick_params(labelsize=6)


def draw_contours(figure: Figure, values: Values) -> None:
    """The same from above."""
    models, magnitudes = values["models"], values["magnitudes"]
    figure.set_size_inches(2.2 * len(magnitudes), 2.0 * len(models))
    panels = figure.subplots(len(models), len(magnitudes), squeeze=False)
    for model, row in zip(models, panels, strict=True):
        for magnitude, grid, axes in zip(magnitudes, model["surfaces"], row, strict=True):
            x, y, z = _mesh(grid, magnitude)
            if np.ptp(z[np.isfinite(z)]) > 0:
                axes.contourf(x, y, z, 12, cmap="viridis")
            axes.plot(0, 0, "o", color="#d9480f", markerfacecolor="white", markersize=4)
            axes.grid(visible=False)
            axes.tick_params(labelsize=6)
            axes.set_title(f"{model['method']}, ±{magnitude:g}", fontsize=8)


def _mesh(grid: list[list[float | None]], magnitude: float) -> tuple[Any, Any, Any]:
    steps = np.linspace(-magnitude, magnitude, len(grid))
    x, y = np.meshgrid(steps, steps)
    return x, y, np.array([[np.nan if value is None else value for value in row] for row in grid])


def _row(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])


def _colours(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]
