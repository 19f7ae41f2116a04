"""The figure of a data set from the main table on its page, where the runs behind it are not in the repository.

`python -m docs.results_figure earlier-amazon-video earlier-lastfm-2k` draws these again, `fedrecgel report` others.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from html import escape
from math import sqrt
from pathlib import Path

from scipy.stats import t

METRICS = {"NDCG@10": "among 99 candidates", "NDCG@10, all items": "among all items"}
CENTRALISED = ("itemknn", "ease", "ials", "gfcf")
REFERENCES = ("popularity", "seen-first")
COLOURS = {"federated": "#0f766e", "reference": "#6b7280", "centralised": "#b45309"}
NUMBER = re.compile(r"\**'?([\d.]+)(?: ± ([\d.]+))?")


@dataclass(frozen=True)
class Dot:
    """A method's mean and its 95% interval over seeds, in percent."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """A method in both rankings."""

    name: str
    kind: str
    dots: dict[str, Dot]


def read_lines(table: str) -> list[Line]:
    """The rows of a Markdown table, best first."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    head, lines = rows[0], []
    for row in rows[2:]:
        cells = dict(zip(head, row, strict=True))
        name = re.sub(r"[*_<>/u]{2,}", "", cells["method"])
        seeds = int(cells["seeds"])
        dots = {}
        for metric in METRICS:
            found = NUMBER.search(cells.get(metric, ""))
            if found:
                half = t.ppf(0.975, seeds - 1) * float(found[2]) / sqrt(seeds) if found[2] and seeds > 1 else 0.0
                mean = float(found[1])
                dots[metric] = Dot(mean, mean - half, mean + half)
        plain = name.partition(",")[0].partition(" (")[0]
        kind = "centralised" if plain in CENTRALISED else "reference" if plain in REFERENCES else "federated"
        if dots:
            lines.append(Line(name, kind, dots))
    return sorted(lines, key=lambda line: -line.dots["NDCG@10"].mean)


def results_figure(table: str) -> str:
    """Two panels on a white card, as SVG."""
    lines = read_lines(table)
    height = 96 + 26 * len(lines)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 960 {height}' width='960' height='{height}' role='img' "
        "font-family='system-ui, Segoe UI, Helvetica, Arial, sans-serif' font-size='14'>",
        f"<title>NDCG@10 of every method</title><rect width='960' height='{height}' rx='10' fill='#fff'/>",
    ]
    for number, line in enumerate(lines):
        weight = "700" if line.name == "popularity" else "400"
        y = 76 + 26 * number
        colour = COLOURS[line.kind]
        style = f"text-anchor='end' fill='{colour}' font-weight='{weight}'"
        parts.append(f"<text x='150' y='{y + 5}' {style}>{escape(line.name)}</text>")
    for panel, (metric, words) in enumerate(METRICS.items()):
        parts.append(_panel(lines, metric, words, 170 + 395 * panel, 345, height))
    legend = (("federated", 170), ("reference", 300), ("centralised", 420))
    for kind, x in legend:
        label = {"federated": "federated", "reference": "no learning", "centralised": "all data in one place"}[kind]
        parts.append(f"<circle cx='{x}' cy='{height - 14}' r='5' fill='{COLOURS[kind]}'/>")
        parts.append(f"<text x='{x + 10}' y='{height - 9}' fill='#374151'>{label}</text>")
    parts.append(f"<text x='910' y='{height - 9}' text-anchor='end' fill='#374151'>bars: 95% over seeds</text></svg>\n")
    return "".join(parts)


def _panel(lines: list[Line], metric: str, words: str, left: int, width: int, height: int) -> str:
    shown = [line for line in lines if metric in line.dots]
    low = min(line.dots[metric].low for line in shown)
    high = max(line.dots[metric].high for line in shown)
    room = max(high - low, 1.0)
    low, high = low - 0.05 * room, high + 0.16 * room

    def place(value: float) -> str:
        return f"{left + width * (value - low) / (high - low):.1f}"

    parts = [f"<text x='{left}' y='28' font-size='16' font-weight='700' fill='#111827'>NDCG@10 {words}, %</text>"]
    bottom = height - 42
    for line in shown:
        if line.name == "popularity":
            x = place(line.dots[metric].mean)
            parts.append(f"<line x1='{x}' y1='48' x2='{x}' y2='{bottom}' stroke='#6b7280' stroke-dasharray='5 4'/>")
    for number, line in enumerate(lines):
        y = 76 + 26 * number
        parts.append(f"<line x1='{left}' y1='{y + 13}' x2='{left + width}' y2='{y + 13}' stroke='#f3f4f6'/>")
        dot = line.dots.get(metric)
        if dot is None:
            continue
        colour = COLOURS[line.kind]
        if dot.high > dot.low:
            ends = f"x1='{place(dot.low)}' x2='{place(dot.high)}' y1='{y}' y2='{y}'"
            parts.append(f"<line {ends} stroke='{colour}' stroke-width='3'/>")
        parts.append(f"<circle cx='{place(dot.mean)}' cy='{y}' r='5' fill='{colour}'/>")
        beside = f"x='{float(place(dot.high)) + 9:.1f}' y='{y + 5}' font-size='12'"
        parts.append(f"<text {beside} fill='#374151'>{dot.mean:.1f}</text>")
    return "".join(parts)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = (Path(__file__).parent / "results" / f"{name}.md").read_text(encoding="utf-8")
        drawn = results_figure(page.partition("## HR and NDCG of every method")[2])
        (Path(__file__).parent / "assets" / "results" / f"{name}.svg").write_text(drawn, encoding="utf-8")
