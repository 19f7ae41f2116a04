"""The numbers behind every figure, as plain values: the page's script and matplotlib draw the same ones."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from fedrecgel.report.collect import Collected
from fedrecgel.studies.ablation import FULL, Ablation
from fedrecgel.studies.landscape import Landscape
from fedrecgel.studies.main_table import POPULARITY, MainTable
from fedrecgel.studies.sensitivity import SHOWN, Point, Sensitivity
from fedrecgel.studies.statistics import Comparison

Values = dict[str, Any]
"""JSON values of one figure."""


def curves(found: Collected, dataset: str) -> Values | None:
    """Metrics over rounds of every configuration that has several evaluations."""
    groups = [group for group in found.shown_groups if group.dataset == dataset and group.first["rounds"] > 1]
    methods = [group.method for group in groups]
    metrics: Values = {}
    for group in groups:
        label = group.method if methods.count(group.method) == 1 else group.label
        for metric, curve in group.curves.items():
            metrics.setdefault(metric, []).append({"label": label, "method": group.method, **vars(curve)})
    if not metrics:
        return None
    reference = groups[0].first["reference"][POPULARITY]
    return {"metrics": metrics, "popularity": {name: reference[name] for name in SHOWN if name in reference}}


def versus_popularity(main: MainTable, dataset: str) -> Values | None:
    """Every method minus popularity, with intervals."""
    shown: Values = {}
    for metric in SHOWN:
        pairs = [
            pair
            for pair in main.pairs
            if (pair.dataset, pair.against, pair.metric, pair.second) == (dataset, "candidates", metric, POPULARITY)
        ]
        rows = [difference_row(pair.first, pair.comparison) for pair in pairs]
        shown[metric] = sorted(rows, key=lambda row: -float(row["difference"]))
    return shown if any(shown.values()) else None


def difference_row(name: str, found: Comparison) -> Values:
    """A line of a forest plot, in points."""
    p = found.p if found.p_adjusted is None else found.p_adjusted
    difference, low, high = (100 * value for value in (found.difference, found.low, found.high))
    details = [
        ("difference", f"{difference:+.2f}"),
        ("95% interval", f"{low:+.2f} … {high:+.2f}"),
        ("adjusted p", "< 0.001" if p < 0.001 else f"{p:.3f}"),
        ("Cohen's d", f"{found.effect:+.3f}"),
        ("users × seeds", f"{found.users:,} × {found.seeds}"),
    ]
    return {"name": name, "difference": difference, "low": low, "high": high, "sign": found.sign, "details": details}


def ablation(document: Ablation, dataset: str, setting: str) -> Values | None:
    """The full method minus each variant, with intervals."""
    rows = [item for item in document.rows if (item.row.dataset, item.setting) == (dataset, setting)]
    shown: Values = {}
    for metric in SHOWN:
        shown[metric] = [
            difference_row(item.row.label, item.above["candidates"][metric])
            for item in rows
            if item.row.label != FULL and metric in item.above.get("candidates", {})
        ]
    return shown if any(shown.values()) else None


def points_of(document: Sensitivity, dataset: str, setting: str, radius: str) -> list[Point]:
    """One curve, by value."""
    chosen = [p for p in document.points if (p.row.dataset, p.setting, p.radius) == (dataset, setting, radius)]
    return sorted(chosen, key=lambda point: point.value)


def sensitivity(document: Sensitivity, points: list[Point]) -> Values:
    """HR@10 and NDCG@10 over a radius: mean and one standard deviation to both sides."""
    metrics: Values = {}
    for metric in SHOWN:
        cells = [point.row.cells["candidates"][metric] for point in points]
        metrics[metric] = {
            "mean": [cell.mean for cell in cells],
            "low": [cell.mean - (cell.sd or 0.0) for cell in cells],
            "high": [cell.mean + (cell.sd or 0.0) for cell in cells],
        }
    reference = document.popularity[points[0].row.dataset]
    return {
        "radius": points[0].radius,
        "values": [point.value for point in points],
        "metrics": metrics,
        "popularity": {name: reference[name] for name in SHOWN},
    }


def gap(found: Collected, points: list[Point]) -> Values | None:
    """Training and held-out loss over a radius."""
    by_folder = {record.folder: record.generalisation for record in found.finished}
    values, train, heldout = [], [], []
    for point in points:
        known = [item for folder in point.row.folders if (item := by_folder.get(folder)) is not None]
        if known:
            values.append(point.value)
            train.append(fmean(item["train_loss"] for item in known))
            heldout.append(fmean(item["heldout_loss"] for item in known))
    return {"radius": points[0].radius, "values": values, "train": train, "heldout": heldout} if values else None


def landscape(document: Landscape, group: tuple[str, str, str]) -> Values | None:
    """Surfaces of both methods at every magnitude."""
    models = [item for item in document.measured if item.group == group and item.flatness.surfaces]
    if not models:
        return None
    return {
        "magnitudes": [surface.magnitude for surface in models[0].flatness.surfaces],
        "models": [
            {
                "method": item.method,
                "loss": item.flatness.loss,
                "surfaces": [surface.loss for surface in item.flatness.surfaces],
            }
            for item in models
        ],
    }


def communication(found: Collected, dataset: str) -> list[Values]:
    """Megabytes per participating client and round."""
    groups = {group.method: group for group in found.shown_groups if group.dataset == dataset}
    return [
        {"name": method, **{way: group.records[0].traffic(way) / 1e6 for way in ("up", "down")}}
        for method, group in groups.items()
    ]
