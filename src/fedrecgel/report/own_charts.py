"""The charts that belong to no experiment: training curves, and what travels."""

from __future__ import annotations

from fedrecgel.display.chart import BandLine, Chart, Curves, Panel, Traffic
from fedrecgel.methods import method_label
from fedrecgel.report.collect import Collected, MetricHistory


def training_curves(found: Collected, command: str) -> list[Chart]:
    """Metrics over rounds, for every data set with configurations that have several evaluations."""
    made_by = found.main.command if found.main else command
    charts = []
    for dataset in dict.fromkeys(group.dataset for group in found.groups):
        content = _curves(found, dataset)
        if content is not None:
            charts.append(Chart(f"curves-{dataset}", dataset, content, made_by))
    return charts


def _curves(found: Collected, dataset: str) -> Curves | None:
    groups = [group for group in found.shown_groups if group.dataset == dataset and group.first["rounds"] > 1]
    methods = [group.method for group in groups]
    lines: dict[str, list[BandLine]] = {}
    for group in groups:
        label = method_label(group.method) if methods.count(group.method) == 1 else group.label
        for metric, curve in group.curves.items():
            lines.setdefault(metric, []).append(_line(label, group.method, curve, 1 if metric == "loss" else 100))
    if not lines:
        return None
    references = [group.first["reference"] for group in groups]
    popularity = next((found["popularity"] for found in references if found), dict[str, float]())
    panels = {
        metric: Panel(f"{metric}, %", own, 100 * popularity[metric] if metric in popularity else None)
        for metric, own in lines.items()
    }
    if "loss" in lines:
        panels["loss"] = Panel("training loss", lines["loss"], digits=4)
    return Curves("round", panels)


def _line(label: str, method: str, curve: MetricHistory, scale: float) -> BandLine:
    mean, low, high = ([scale * value for value in values] for values in (curve.mean, curve.low, curve.high))
    return BandLine(label, method, curve.rounds, mean, low, high)


def traffic(found: Collected, command: str) -> list[Chart]:
    """Megabytes per participating client and round."""
    charts = []
    for dataset in dict.fromkeys(group.dataset for group in found.groups):
        groups = {method_label(group.method): group for group in found.shown_groups if group.dataset == dataset}
        rows = [
            {"name": name, **{way: group.records[0].traffic(way) / 1e6 for way in ("up", "down")}}
            for name, group in groups.items()
        ]
        title = f"{dataset}: per client and round"
        charts.append(Chart(f"traffic-{dataset}", title, Traffic(rows), command, where="page"))
    return charts
