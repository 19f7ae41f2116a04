"""The charts that belong to no experiment: training curves over rounds and over uploads, and what travels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from fedrecgel.display.chart import BandLine, Chart, Curves, Panel, Traffic
from fedrecgel.report.collect import Collected, Group, MetricHistory


def training_curves(found: Collected, command: str) -> list[Chart]:
    """Metrics over rounds, for every data set with configurations that have several evaluations."""
    return [
        Chart(f"curves-{dataset}", dataset, Curves("round", panels), _made_by(found, command))
        for dataset in _datasets(found)
        if (panels := _panels(found, dataset, lambda curve: curve.rounds))
    ]


def upload_curves(found: Collected, command: str) -> list[Chart]:
    """Metrics over what a client has sent: which level each method reaches with how many bytes."""
    charts = []
    for dataset in _datasets(found):
        if panels := _upload_panels(found, dataset):
            content = Curves("megabytes sent by a client", panels, logarithmic=True)
            charts.append(Chart(f"uploads-{dataset}", dataset, content, _made_by(found, command)))
    return charts


def _upload_panels(found: Collected, dataset: str) -> dict[str, Panel]:
    panels = _panels(found, dataset, lambda curve: curve.megabytes)
    return {metric: panel for metric, panel in panels.items() if metric != "loss"}


def _made_by(found: Collected, command: str) -> str:
    return found.main.command if found.main else command


def _datasets(found: Collected) -> list[str]:
    return list(dict.fromkeys(group.dataset for group in found.groups))


def _panels(found: Collected, dataset: str, over: Callable[[MetricHistory], Sequence[float]]) -> dict[str, Panel]:
    """A panel for every metric, and for the loss, unless all were evaluated once; one-round methods have no curve."""
    groups = [group for group in found.shown_groups if group.dataset == dataset and group.first["rounds"] > 1]
    if all(len(curve.rounds) < 2 for group in groups for metric, curve in group.curves.items() if metric != "loss"):
        return {}
    colours = found.colours
    lines: dict[str, list[BandLine]] = {}
    for group in groups:
        for metric, curve in group.curves.items():
            scale = 1 if metric == "loss" else 100
            band = ([scale * value for value in values] for values in (curve.mean, curve.low, curve.high))
            lines.setdefault(metric, []).append(BandLine(group.label, colours[group.label], over(curve), *band))
    popularity = _popularity(groups)
    panels = {
        metric: Panel(f"{metric}, %", own, 100 * popularity[metric] if metric in popularity else None)
        for metric, own in lines.items()
    }
    if "loss" in lines:
        panels["loss"] = Panel("training loss", lines["loss"], digits=4)
    return panels


def _popularity(groups: Sequence[Group]) -> dict[str, float]:
    """Mean over the runs of the configuration with most of them: every seed may have a split of its own."""
    references = [[record.run["reference"] for record in group.records] for group in groups]
    most = max(([found["popularity"] for found in runs if found] for runs in references), key=len, default=[])
    return {metric: fmean(found[metric] for found in most) for metric in (most[0] if most else {})}


def traffic(found: Collected, command: str) -> list[Chart]:
    """Megabytes per participating client and round."""
    charts = []
    for dataset in _datasets(found):
        groups = {group.label: group for group in found.shown_groups if group.dataset == dataset}
        rows = [
            {"name": name, **{way: group.records[0].traffic(way) / 1e6 for way in ("up", "down")}}
            for name, group in groups.items()
        ]
        title = f"{dataset}: per client and round"
        if rows:  # where there is a main table, only its rows are shown
            charts.append(Chart(f"traffic-{dataset}", title, Traffic(rows), command, where="page"))
    return charts
