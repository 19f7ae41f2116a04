"""The page: one file that needs no network, made of result files only."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib import resources

from fedrecgel.display.chart import Chart
from fedrecgel.display.palette import DARK, GREY, GREY_ON_DARK, LIGHT, variables
from fedrecgel.display.section import Folded, Part, SideBySide
from fedrecgel.display.tabular import Table
from fedrecgel.display.text import in_html
from fedrecgel.report import attacks, examples, facts, lists, people
from fedrecgel.report.collect import Collected
from fedrecgel.report.findings import findings_of
from fedrecgel.report.own_charts import traffic, training_curves, upload_curves
from fedrecgel.studies import EXPERIMENTS

CURVES_PLACE = 25
"""Where the training curves stand among the experiments."""
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
            body = f'<section id="{in_html(name)}"><h2>{in_html(title)}</h2><p>{in_html(about)}</p>{content}</section>'
            self.sections.append((name, title, body))

    def show(self, part: Part) -> str:
        """A part of a section; charts are drawn into it by the page's script."""
        match part:
            case Table():
                return table_card(part)
            case Chart():
                return self._chart(part)
            case SideBySide(charts):
                return f'<div class="pair">{"".join(map(self._chart, charts))}</div>'
            case Folded(summary, tables):
                rows = "".join(map(table_card, tables))
                return f"<details><summary>{in_html(summary)}</summary>{rows}</details>"

    def _chart(self, chart: Chart) -> str:
        if chart.where == "paper":
            return ""
        kind = chart.content.kind
        key = f"figure-{len(self.figures)}"  # not its name, in which a browser may change a character
        self.figures[key] = asdict(chart.content)
        inside = '<div class="surfaces"></div>' if kind == "surfaces" else '<div class="plot"></div>'
        return (
            f'<div class="card"><figure data-figure="{kind}" data-key="{key}">'
            f'<figcaption><h3>{in_html(chart.title)}</h3><div class="switches"></div></figcaption>'
            f'{inside}<div class="legend"></div></figure>{_command(chart.command)}</div>'
        )


def render(found: Collected, command: str) -> str:
    """The whole page."""
    page = _Page()
    names = sorted(found.documents, key=lambda name: EXPERIMENTS[name].page_place)
    first = [name for name in names if EXPERIMENTS[name].page_place < CURVES_PLACE]
    _experiments(page, found, first)
    if found.main is None:
        _plain(page, found, command)
    _people(page, found)
    _curves(page, found, command)
    _experiments(page, found, [name for name in names if name not in first])
    _generalisation(page, found)
    _behind(page, found, command)
    title = "fedrecgel: " + ", ".join(dict.fromkeys(group.dataset for group in found.groups))
    return _whole(page, title, _head(found), command)


def render_parts(title: str, about: str, parts: Sequence[Part], command: str) -> str:
    """A page of one section."""
    page = _Page()
    page.add("comparison", "Which differences are real", about, [page.show(part) for part in parts])
    return _whole(page, f"fedrecgel: {title}", f"<h1>{in_html(title)}</h1>", command)


def _whole(page: _Page, title: str, head: str, command: str) -> str:
    links = [f'<a href="#{in_html(name)}">{in_html(title)}</a>' for name, title, _ in page.sections]
    places = {"light": variables(LIGHT, GREY), "dark": variables(DARK, GREY_ON_DARK)}
    style, script = _fill(_asset("page.css"), places), _asset("page.js")
    return _fill(
        _asset("template.html"),
        {
            "title": in_html(title),
            "policy": _policy(style, script),
            "style": style,
            "chips": "".join(links),
            "side": "".join(links),
            "body": head + "".join(body for _, _, body in page.sections),
            "command": in_html(command),
            "script": script,
            "data": _json({"figures": page.figures}),
        },
    )


def _fill(template: str, parts: dict[str, str]) -> str:
    """All places in one pass: a value that looks like a place is not filled."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _json(value: object) -> str:
    """For a script element, which only a < could end or confuse; json writes all but ASCII as escapes."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def _policy(style: str, script: str) -> str:
    """The page runs its own script, has its own style, and asks nobody for anything."""
    allowed = {"script-src": _digest(script), "style-src": _digest(style), "img-src": "data:"}
    closed = dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    return "; ".join(f"{kind} {source}" for kind, source in (closed | allowed).items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return resources.files("fedrecgel.report").joinpath("page", name).read_text(encoding="utf-8")


def _command(text: str) -> str:
    if not text:
        return ""
    return f'<div class="command"><code>{in_html(text)}</code><button type="button" class="copy">Copy</button></div>'


def table_card(table: Table, *, heading: bool = True, folded: bool = False) -> str:
    """A table with its notes and the command that makes it; a touch or click folds it."""
    title = f"<h3>{in_html(table.title)}</h3>" if heading else f"<h3>{in_html(f'{len(table.rows)} rows')}</h3>"
    notes = "".join(f"<li>{in_html(note)}</li>" for note in table.notes)
    listed = f'<ul class="notes">{notes}</ul>' if notes else ""
    start = "" if folded else "open "
    content = f"{table.html()}{listed}{_command(table.command)}"
    return f'<div class="card"><details {start}class="fold"><summary>{title}</summary>{content}</details></div>'


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
    shown = "".join(f"<div><dt>{in_html(name)}</dt><dd>{in_html(value)}</dd></div>" for name, value in tiles.items())
    cards = "".join(
        f'<div class="card"><h3>{in_html(item.dataset)}</h3><ul>'
        + "".join(f"<li>{in_html(sentence)}</li>" for sentence in item.sentences)
        + "</ul></div>"
        for item in findings_of(found)
        if item.sentences
    )
    return (
        f'<h1>Federated recommendation, measured</h1><p class="lead">{LEAD}</p><dl class="tiles">{shown}</dl>'
        f'<div class="findings">{cards}</div>'
    )


def _experiments(page: _Page, found: Collected, names: Sequence[str]) -> None:
    for name in names:
        kind = EXPERIMENTS[name]
        parts = [part for document in found.documents[name] for part in document.parts(found.finished)]
        page.add(name, kind.title, kind.about, [page.show(part) for part in parts])


def _plain(page: _Page, found: Collected, command: str) -> None:
    about = "What each run reaches beside popularity, and which differences are real, user by user."
    parts = [page.show(part) for result in found.plain_results(command) for part in result.parts([])]
    page.add("results", "Results", about, parts)


def _people(page: _Page, found: Collected) -> None:
    page.add("people", "Who gains", people.ABOUT, [table_card(table) for table in people.people_tables(found)])
    page.add("lists", "What lists show", lists.ABOUT, [table_card(table) for table in lists.list_tables(found)])
    shown = [table_card(table) for table in examples.example_tables(found)]
    page.add("examples", "Examples", examples.ABOUT, shown)


def _curves(page: _Page, found: Collected, command: str) -> None:
    about = "Mean over seeds, with the lowest and highest seed as a band. The dashed line is popularity."
    page.add("curves", "Training curves", about, [page.show(chart) for chart in training_curves(found, command)])
    about = "The same over what a client has sent until then, mean over all clients, when tables are sent whole."
    page.add("uploads", "What accuracy costs", about, [page.show(chart) for chart in upload_curves(found, command)])


def _generalisation(page: _Page, found: Collected) -> None:
    table = facts.generalisation_table(found)
    about = (
        "What the paper argues and does not show: how far held-out loss is above training loss, and the bound itself."
    )
    page.add("generalisation", "Generalisation", about, [table_card(table, heading=False)] if table else [])


def _warnings(dataset: str, texts: Sequence[str]) -> str:
    listed = "".join(f"<li>{in_html(text)}</li>" for text in texts)
    title = f"<summary><h3>{in_html(dataset)}</h3></summary>"
    return f'<div class="card"><details open class="fold">{title}<ul class="warnings">{listed}</ul></details></div>'


def _behind(page: _Page, found: Collected, command: str) -> None:
    """What stands behind the numbers."""
    table = facts.data_table(found)
    parts = [table_card(table, heading=False)] if table else []
    parts += [_warnings(name, about["warnings"]) for name, about in found.data.items() if about["warnings"]]
    page.add("data", "Data audit", "What makes results on these data sets easy to misread.", parts)
    protocol = table_card(facts.protocol_table(found), heading=False)
    page.add("protocol", "Protocol", "Two results can be compared only if all of this is the same.", [protocol])
    parts = [page.show(SideBySide(traffic(found, command))), table_card(facts.privacy_table(found), heading=False)]
    about = "Names of everything a device sends, and how much travels when tables are sent whole, as on a real wire."
    page.add("leaves-device", "What leaves the device", about, parts)
    page.add("attacks", "Attacks", attacks.ABOUT, [table_card(table) for table in attacks.attack_tables(found)])
    machine = table_card(facts.environment_table(found), heading=False)
    page.add("environment", "Environment", "Versions, commit and machine.", [machine])
    runs = table_card(facts.runs_table(found), heading=False, folded=True)
    page.add("runs", "Runs", "Where every number of this page comes from; folders are relative to the results.", [runs])
