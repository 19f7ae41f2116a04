"""The page: one file that needs no network, made of result files only."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from importlib import resources

from fedrecgel.report import facts, figure_data
from fedrecgel.report.collect import Collected
from fedrecgel.report.figure_data import Values
from fedrecgel.report.findings import findings_of
from fedrecgel.report.table import Table
from fedrecgel.report.tables import tables_of
from fedrecgel.studies.sensitivity import RADII

LEAD = (
    "Recommenders trained while every user's clicks stay on the device: what each method reaches, which differences "
    "are real, and how far all of them are from plain popularity."
)


@dataclass
class _Page:
    """Sections in order, and the numbers of their figures."""

    sections: list[tuple[str, str, str]] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)

    def add(self, name: str, title: str, about: str, parts: list[str]) -> None:
        """A section, unless it is empty."""
        if parts:
            content = "".join(parts)
            body = f'<section id="{name}"><h2>{escape(title)}</h2><p>{escape(about)}</p>{content}</section>'
            self.sections.append((name, title, body))

    def figure(self, kind: str, key: str, title: str, values: object, command: str) -> str:
        """A card the page's script draws into."""
        self.figures[key] = values
        inside = '<div class="surfaces"></div>' if kind == "landscape" else '<div class="plot"></div>'
        return (
            f'<div class="card"><figure data-figure="{kind}" data-key="{escape(key)}">'
            f'<figcaption><h3>{escape(title)}</h3><div class="switches"></div></figcaption>'
            f'{inside}<div class="legend"></div></figure>{_command(command)}</div>'
        )


def render(found: Collected, command: str) -> str:
    """The whole page."""
    page = _Page()
    for add in (_main, _quirks, _curves, _sensitivity, _ablation, _landscape, _generalisation, _behind):
        add(page, found, command)
    methods = list(dict.fromkeys(group.method for group in found.groups))
    methods.sort(key=lambda name: name != "fedrecgel")  # the first colour is the paper's own method
    data = json.dumps({"methods": methods, "figures": page.figures}, allow_nan=False).replace("</", "<\\/")
    links = [f'<a href="#{name}">{escape(title)}</a>' for name, title, _ in page.sections]
    parts = {
        "title": "fedrecgel: " + ", ".join(dict.fromkeys(group.dataset for group in found.groups)),
        "style": _asset("page.css"),
        "chips": "".join(links),
        "side": "".join(links),
        "body": _head(found) + "".join(body for _, _, body in page.sections),
        "command": escape(command),
        "script": _asset("page.js"),
        "data": data,
    }
    text = _asset("template.html")
    for name, value in parts.items():
        text = text.replace("{{" + name + "}}", value, 1)
    return text


def _asset(name: str) -> str:
    return resources.files("fedrecgel.report").joinpath("page", name).read_text(encoding="utf-8")


def _command(text: str) -> str:
    if not text:
        return ""
    return f'<div class="command"><code>{escape(text)}</code><button type="button" class="copy">Copy</button></div>'


def table_card(table: Table, *, heading: bool = True) -> str:
    """A table with its notes and the command that makes it."""
    title = f"<h3>{escape(table.title)}</h3>" if heading else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    listed = f'<ul class="notes">{notes}</ul>' if notes else ""
    return f'<div class="card">{title}{table.html()}{listed}{_command(table.command)}</div>'


def _head(found: Collected) -> str:
    tiles = {
        "runs": str(len(found.finished)),
        "data sets": str(len({group.dataset for group in found.groups})),
        "methods": str(len({group.method for group in found.groups})),
        "seeds": str(max(len(group.records) for group in found.groups)),
        "failed": str(len(found.records) - len(found.finished)),
    }
    if tiles["failed"] == "0":
        del tiles["failed"]
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles.items())
    cards = "".join(
        f'<div class="card"><h3>{escape(item.dataset)}</h3><ul>'
        + "".join(f"<li>{escape(sentence)}</li>" for sentence in item.sentences)
        + "</ul></div>"
        for item in findings_of(found)
        if item.sentences
    )
    return (
        f'<h1>Federated recommendation, measured</h1><p class="lead">{LEAD}</p><dl class="tiles">{shown}</dl>'
        f'<div class="findings">{cards}</div>'
    )


def _main(page: _Page, found: Collected, command: str) -> None:
    if found.main is None:
        return
    parts = []
    for table in tables_of(found.main):
        dataset = table.name.removeprefix("main-")
        values = figure_data.versus_popularity(found.main, dataset)
        if values:
            title = f"{dataset}: every method minus popularity"
            parts.append(page.figure("versus", f"versus-{dataset}", title, values, table.command))
        parts.append(table_card(table))
    about = "Every method beside popularity and the published figure. Sort by any column; hover a value for its test."
    page.add("main-table", "Main table", about, parts)


def _quirks(page: _Page, found: Collected, command: str) -> None:
    if found.quirks is None:
        return
    about = "Options of the released codes that change results, each against the corrected method."
    page.add("quirks", "What quirks are worth", about, [table_card(table) for table in tables_of(found.quirks)])


def _curves(page: _Page, found: Collected, command: str) -> None:
    made_by = found.main.command if found.main else command
    parts = [
        page.figure("curves", f"curves-{dataset}", dataset, values, made_by)
        for dataset in dict.fromkeys(group.dataset for group in found.groups)
        if (values := figure_data.curves(found, dataset)) is not None
    ]
    about = "Mean over seeds, with the lowest and highest seed as a band. The dashed line is popularity."
    page.add("curves", "Training curves", about, parts)


def _sensitivity(page: _Page, found: Collected, command: str) -> None:
    if found.sensitivity is None:
        return
    document, parts = found.sensitivity, []
    for dataset, setting in dict.fromkeys((point.row.dataset, point.setting) for point in document.points):
        cards = []
        for radius in RADII:
            points = figure_data.points_of(document, dataset, setting, radius)
            if not points:
                continue
            key, title = f"{dataset}-{setting}-{radius}", f"{dataset}, {setting} settings: {radius}"
            values = figure_data.sensitivity(document, points)
            cards.append(page.figure("sensitivity", f"sensitivity-{key}", title, values, document.command))
            losses = figure_data.gap(found, points)
            if losses:
                title = f"{dataset}, {setting}: losses over {radius}"
                cards.append(page.figure("gap", f"gap-{key}", title, losses, document.command))
        parts.append(f'<div class="pair">{"".join(cards)}</div>')
    rows = "".join(table_card(table) for table in tables_of(document))
    parts.append(f"<details><summary>All values and tests</summary>{rows}</details>")
    about = (
        "One radius over the paper's grid, the other fixed at the data set's own value. Bands are one standard "
        "deviation over seeds; HR@10 is read on the left axis, NDCG@10 on the right one."
    )
    page.add("sensitivity", "Sensitivity to the radii", about, parts)


def _ablation(page: _Page, found: Collected, command: str) -> None:
    if found.ablation is None:
        return
    parts = []
    for table in tables_of(found.ablation):
        dataset, _, setting = table.name.removeprefix("ablation-").rpartition("-")
        values = figure_data.ablation(found.ablation, dataset, setting)
        if values:
            title = f"{dataset}, {setting} settings: full method minus variant"
            parts.append(page.figure("ablation", f"ablation-{dataset}-{setting}", title, values, table.command))
        parts.append(table_card(table))
    about = (
        "Sharpness-awareness switched off for the private part, the shared part, or both; paired over users and seeds."
    )
    page.add("ablation", "Ablation", about, parts)


def _landscape(page: _Page, found: Collected, command: str) -> None:
    if found.landscape is None:
        return
    document, parts = found.landscape, []
    for group in dict.fromkeys(item.group for item in document.measured):
        values = figure_data.landscape(document, group)
        if values:
            title = "{}, {} settings, {} normalisation".format(*group)
            parts.append(page.figure("landscape", "-".join(("landscape", *group)), title, values, document.command))
    parts += [table_card(table) for table in tables_of(document)]
    about = (
        "The training loss around each model along two random directions in the space of shared tensors. Drag a "
        "surface to rotate it; both turn together. The white dot is the model."
    )
    page.add("landscape", "Loss landscape", about, parts)


def _generalisation(page: _Page, found: Collected, command: str) -> None:
    table = facts.generalisation_table(found)
    about = (
        "What the paper argues and does not show: how far held-out loss is above training loss, and the bound itself."
    )
    page.add("generalisation", "Generalisation", about, [table_card(table, heading=False)] if table else [])


def _behind(page: _Page, found: Collected, command: str) -> None:
    """What stands behind the numbers."""
    table = facts.data_table(found)
    warnings = "".join(
        f"<h3>{escape(name)}</h3><ul>{''.join(f'<li>{escape(text)}</li>' for text in about['warnings'])}</ul>"
        for name, about in found.data.items()
        if about["warnings"]
    )
    parts = [table_card(table, heading=False)] if table else []
    parts += [f'<div class="card warnings">{warnings}</div>'] if warnings else []
    page.add("data", "Data audit", "What makes results on these data sets easy to misread.", parts)
    protocol = table_card(facts.protocol_table(found), heading=False)
    page.add("protocol", "Protocol", "Two results can be compared only if all of this is the same.", [protocol])
    parts = []
    for dataset in dict.fromkeys(group.dataset for group in found.groups):
        values: list[Values] = figure_data.communication(found, dataset)
        parts.append(page.figure("traffic", f"traffic-{dataset}", f"{dataset}: per client and round", values, command))
    parts = [f'<div class="pair">{"".join(parts)}</div>', table_card(facts.privacy_table(found), heading=False)]
    about = "Names of everything a device sends, and how much travels when tables are sent whole, as on a real wire."
    page.add("privacy", "What leaves the device", about, parts)
    machine = table_card(facts.environment_table(found), heading=False)
    page.add("environment", "Environment", "Versions, commit and machine.", [machine])
    runs = table_card(facts.runs_table(found), heading=False)
    page.add("runs", "Runs", "Where every number of this page comes from; folders are relative to the results.", [runs])
