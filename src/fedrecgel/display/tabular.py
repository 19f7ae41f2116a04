"""A table once, written as text, Markdown, LaTeX or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fedrecgel.display.text import in_html, in_latex, in_markdown, markdown_code, one_line, prose

Mark = Literal["best", "second"]
WIDE = 60
"""Longer cells are broken into lines on the page."""
MARKS = "Bold (*): above every other federated method by the test. Underlined ('): above all but the best by the test."


@dataclass(frozen=True)
class Entry:
    """One cell."""

    text: str
    value: float | None = None
    """What it is sorted by."""
    mark: Mark | None = None
    note: str = ""
    """Smaller, below or after the text: the published figure."""
    hint: str = ""
    """Shown on hover."""


@dataclass(frozen=True)
class Table:
    """Rows under a header; the first column names the row."""

    name: str
    """For file names and anchors."""
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    notes: Sequence[str] = field(default_factory=tuple)
    command: str = ""
    """What makes it."""

    def text(self) -> str:
        """For a terminal."""
        cells = [[one_line(name) for name in self.columns], *([_plain(entry) for entry in row] for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        lines = [
            "  ".join(
                text.ljust(width) if not column else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return "\n".join([one_line(self.title), *lines])

    def markdown(self) -> str:
        """For a docs page."""
        head = "| " + " | ".join(map(in_markdown, self.columns)) + " |"
        sides = ["---" if self._is_words(column) else "---:" for column in range(1, len(self.columns))]
        rule = "|".join(["|---", *sides]) + "|"
        body = ["| " + " | ".join(_markdown(entry) for entry in row) + " |" for row in self.rows]
        notes = [f"- {prose(note)}" for note in self.notes]
        command = ["", markdown_code(self.command)] if self.command else []
        title = f"### {in_markdown(self.title)}"
        return "\n".join([title, "", head, rule, *body, *([""] if notes else []), *notes, *command])

    def latex(self) -> str:
        """For a paper: booktabs, one row per line, its source as a comment."""
        body = [latex_row([_latex(entry) for entry in row]) for row in self.rows]
        return "\n".join(
            [
                f"% {one_line(self.command)}",
                r"\begin{tabular}{l" + "r" * (len(self.columns) - 1) + "}",
                r"\toprule",
                latex_row(list(map(in_latex, self.columns))),
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                *(f"% {one_line(note)}" for note in self.notes),
            ]
        )

    def html(self) -> str:
        """For the page: sortable by its header buttons, values on hover."""
        head = "".join(map(self._head, range(len(self.columns))))
        body = "".join(
            f"<tr{_kind(row[0])}>{''.join(_html(entry, not n) for n, entry in enumerate(row))}</tr>"
            for row in self.rows
        )
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{in_html(self.title)}">'
            f'<table class="sortable" id="table-{in_html(self.name)}"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def _is_words(self, column: int) -> bool:
        return any(_is_text(row[column]) for row in self.rows)

    def _head(self, column: int) -> str:
        kind = ' class="text"' if self._is_words(column) else ""
        button = f'<button type="button">{in_html(self.columns[column])}</button>'
        return f'<th scope="col"{kind} aria-sort="none">{button}</th>'


def _plain(entry: Entry) -> str:
    mark = {"best": "*", "second": "'"}.get(entry.mark or "", "")
    return one_line(f"{entry.text}{mark}" + (f" ({entry.note})" if entry.note else ""))


def _markdown(entry: Entry) -> str:
    text = in_markdown(entry.text)
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(entry.mark or "", text)
    return f"{text}<br>({in_markdown(entry.note)})" if entry.note else text


def latex_row(cells: Sequence[str]) -> str:
    """A row of a LaTeX table; the line break above it would take a leading [ or * for an option of its own."""
    guard = "{}" if cells[0].lstrip().startswith(("[", "*")) else ""
    return guard + " & ".join(cells) + r" \\"


def _latex(entry: Entry) -> str:
    text = in_latex(entry.text)
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(entry.mark or "", text)
    return rf"{text} {{\scriptsize ({in_latex(entry.note)})}}" if entry.note else text


def _kind(first: Entry) -> str:
    """Popularity stands out in every table."""
    return ' class="reference"' if first.text == "popularity" else ""


def _is_text(entry: Entry) -> bool:
    """Whether it is words: a dash where a number is missing is none."""
    return entry.value is None and entry.text not in ("", "–")


def _html(entry: Entry, first: bool) -> str:
    tag = "th" if first else "td"
    value = "" if entry.value is None else f' data-value="{in_html(repr(entry.value))}"'
    hint = f' title="{in_html(entry.hint)}"' if entry.hint else ""
    mark = f' class="{entry.mark}"' if entry.mark else ""
    note = f"<small>{in_html(entry.note)}</small>" if entry.note else ""
    scope = ' scope="row"' if first else ""
    style = "text" if _is_text(entry) and not first else ""
    style += " wide" if len(entry.text) > WIDE and not first else ""
    kind = f' class="{style}"' if style else ""
    return f"<{tag}{scope}{kind}{value}{hint}><span{mark}>{in_html(entry.text)}</span>{note}</{tag}>"
