"""Any runs on the same split compared user by user: `fedrecgel compare` and `fedrecgel.compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fedrecgel.display.chart import Chart, Differences
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.errors import ConfigError
from fedrecgel.runs.result import Result
from fedrecgel.storage import write_text
from fedrecgel.studies.cells import AGAINST, SHOWN, Against, Cell, shown_name, table_metrics
from fedrecgel.studies.experiment import Document
from fedrecgel.studies.leaks import level_sentences, recorded_leak
from fedrecgel.studies.paired import Configuration, FinishedRun, PairedTest, all_pairs, configurations_of
from fedrecgel.studies.records import Record
from fedrecgel.studies.rows import (
    INTERVALS,
    POPULARITY,
    WORDS,
    cell_entry,
    difference_entry,
    difference_line,
    points_text,
    signs_note,
    verdict_text,
)
from fedrecgel.studies.statistics import ENOUGH_SEEDS, TEST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = (".png", ".svg", ".pdf")
WRITTEN = (".html", ".json", ".md", ".tex", *FIGURES)
"""What a comparison is written to, by the end of the name."""
RANKED: dict[Against, str] = {"candidates": "", "catalogue": ", all items"}
TOO_FEW = f"Which differences are real cannot be tested: that takes runs with {ENOUGH_SEEDS} seeds."
ABOUT = "Every pair of configurations, user by user on the same held-out items. Hover an interval for its test."


@dataclass(frozen=True)
class ComparedRow:
    """One configuration."""

    label: str
    method: str
    seeds: list[int]
    folders: list[str]
    cells: dict[Against, dict[str, Cell]]


@dataclass(frozen=True)
class RunComparison(Document):
    """The paired tests of some runs: a table and a figure, in a terminal, a notebook, a page or a paper."""

    dataset: str
    rows: list[ComparedRow]
    popularity: dict[Against, dict[str, float]]
    """Of the same split, where the runs measured it."""
    pairs: list[PairedTest]
    untested: str = ""
    """Why there are no tests, if there are none."""
    leak: bool = False
    """Whether runs recorded that held-out items stand in training rows."""

    def __repr__(self) -> str:
        """The tables, as a terminal shows them."""
        return self.text()

    def _repr_html_(self) -> str:
        """The tables in a notebook."""
        return "".join(f"<h4>{table.title}</h4>{table.html()}" for table in self.tables())

    def tables(self) -> list[Table]:
        """What each configuration reaches, and the difference of every pair."""
        return [self._levels(), *([self._differences()] if self.pairs else [])]

    def _ranked(self) -> list[Against]:
        return [against for against in AGAINST if all(against in row.cells for row in self.rows)]

    def _columns(self) -> list[str]:
        return [f"{metric}{RANKED[against]}" for against in self._ranked() for metric in SHOWN]

    def _levels(self) -> Table:
        lines = [
            [
                Entry(row.label, hint=", ".join(row.folders)),
                *(cell_entry(row.cells[against][metric]) for against in self._ranked() for metric in SHOWN),
                Entry(str(len(row.seeds)), len(row.seeds), hint=f"seeds {', '.join(map(str, row.seeds))}"),
            ]
            for row in self.rows
        ]
        if self.popularity and POPULARITY not in {row.method for row in self.rows}:
            known = (self.popularity.get(against, {}).get(metric) for against in self._ranked() for metric in SHOWN)
            shown = [Entry("–") if value is None else Entry(f"{100 * value:.2f}", value) for value in known]
            lines.append([Entry(POPULARITY), *shown, Entry("–")])
        notes = ["Percent, mean ± standard deviation over seeds."]
        notes += [f"Not tested: {self.untested}"] if self.untested else []
        columns, title = ["run", *self._columns(), "seeds"], f"{self.dataset}: what each reaches"
        return Table(f"levels-{self.dataset}", title, columns, lines, notes, self.command)

    def _differences(self) -> Table:
        lines = [
            [
                Entry(f"{pair.first} minus {pair.second}"),
                Entry(f"{pair.metric}{RANKED[pair.against]}"),
                difference_entry(pair.comparison),
                Entry(str(pair.comparison.seeds), pair.comparison.seeds),
                Entry(verdict_text(pair.comparison)),
            ]
            for pair in sorted(self.pairs, key=lambda pair: (pair.against == "catalogue", pair.metric))
            if pair.metric in SHOWN
        ]
        notes = [f"Points. {INTERVALS} {signs_note('the second')}", f"Test: {TEST}; Holm-corrected over the pairs."]
        columns = ["pair", "metric", "points", "seeds", "verdict"]
        return Table(f"differences-{self.dataset}", f"{self.dataset}: differences", columns, lines, notes, self.command)

    def charts(self, records: Sequence[Record] = ()) -> list[Chart]:
        """A forest plot of the pairs, for each metric among candidates."""
        if not self.pairs:
            return []
        lines = {
            metric: [
                difference_line(f"{pair.first} minus {pair.second}", pair.comparison)
                for pair in self.pairs
                if (pair.against, pair.metric) == ("candidates", metric)
            ]
            for metric in SHOWN
        }
        content = Differences("difference, {metric}", "{metric}, points", "← second better", "first better →", lines)
        name = f"differences-{self.dataset}"
        return [Chart(name, f"{self.dataset}: differences", content, self.command, above=name)]

    def findings(self) -> dict[str, list[str]]:
        """What each reaches, and which differences the test calls real."""
        tested = [pair.comparison.verdict != "untested" for pair in self.pairs]
        told = self.sentences("HR@10") if any(tested) else [TOO_FEW] if tested else []
        return {self.dataset: [*self._level(), *told]}

    def _level(self, metric: str = "HR@10") -> list[str]:
        means = {row.label: row.cells["candidates"][metric].mean for row in self.rows if "candidates" in row.cells}
        floor = self.popularity.get("candidates", {}).get(metric)
        if not means or floor is None:
            return []
        order = sorted(means, key=lambda label: -means[label])
        each = ", ".join(f"{label} {100 * means[label]:.0f}%" for label in order if label != POPULARITY)
        return level_sentences(f"{100 * floor:.0f}%", "the candidates", each, leak=self.leak)

    def sentences(self, metric: str = "NDCG@10") -> list[str]:
        """A sentence for each pair, in plain words."""
        return [
            f"{pair.first} against {pair.second}: {verdict_text(pair.comparison)} "
            f"({metric} {points_text(pair.comparison, interval=True)} points)."
            for pair in self.pairs
            if (pair.against, pair.metric) == ("candidates", metric)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Every number, for other programs."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        for pair, written in zip(self.pairs, found["pairs"], strict=True):
            written["verdict"] = WORDS[pair.comparison.verdict] or "too few seeds"
        return found

    def plot(self) -> Figure:
        """The figure, drawn by matplotlib (extra `report`)."""
        from fedrecgel.report.drawing import figure_of

        return figure_of(self.charts()[0])

    def save(self, path: str | Path) -> None:
        """Write a page (.html), a figure (.png, .svg, .pdf), tables (.md, .tex) or all numbers (.json).

        Raises:
            ConfigError: the name ends otherwise.
        """
        target = Path(path)
        check_name(target)
        if target.suffix in FIGURES:
            from fedrecgel.report.drawing import save

            save(self.plot(), target)
            return
        write_text(target, self._written(target.suffix))

    def _written(self, suffix: str) -> str:
        match suffix:
            case ".json":
                return msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=1).decode() + "\n"
            case ".md":
                return "\n\n".join(table.markdown() for table in self.tables()) + "\n"
            case ".tex":
                return "\n\n".join(table.latex() for table in self.tables()) + "\n"
        from fedrecgel.report.html import render_parts  # which shows comparisons, too

        title = f"{self.dataset}: {', '.join(row.label for row in self.rows)}"
        return render_parts(title, ABOUT, self.parts([]), self.command)


def check_name(path: Path) -> None:
    """Refuse a name that says nothing about what to write."""
    if path.suffix not in WRITTEN:
        raise ConfigError(f"A comparison is written to a file that ends in {', '.join(WRITTEN)}. Found '{path}'.")


def compare(*runs: Result | str | Path, command: str = "fedrecgel.compare(...)") -> RunComparison:
    """Test every pair of configurations among these runs, user by user.

    Runs that differ in their seeds only are one configuration; five seeds or more let the test speak.

    Args:
        runs: results, or run folders.
        command: what the tables name as their origin.

    Raises:
        ConfigError: there is one configuration only, or two were not tested on the same users and items.
        RunFolderError: a folder holds no finished run.
    """
    found = configurations_of([FinishedRun.of(run) for run in runs])
    pairs = all_pairs(found)
    first = found[0].runs[0].summary
    reference = {
        "candidates": first["reference"].get(POPULARITY),
        "catalogue": (first.get("reference_full") or {}).get(POPULARITY),
    }
    return RunComparison(
        command,
        shown_name(first["dataset"]),
        [_row(one) for one in found],
        {against: reference[against] for against in AGAINST if reference[against]},
        pairs,
        leak=recorded_leak(run.summary for one in found for run in one.runs),
    )


def _row(one: Configuration) -> ComparedRow:
    cells: dict[Against, dict[str, Cell]] = {}
    for against in AGAINST:
        for metric in table_metrics():
            values = one.means(against, metric)
            if values is not None:
                spread = float(values.std(ddof=1)) if len(values) > 1 else None
                cells.setdefault(against, {})[metric] = Cell(float(values.mean()), spread)
    seeds, folders = [run.seed for run in one.runs], [run.name for run in one.runs]
    return ComparedRow(one.label, str(one.runs[0].summary["method"]), seeds, folders, cells)
