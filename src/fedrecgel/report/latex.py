"""One table to paste into a paper: booktabs, the chosen methods and metrics, best in bold, marks, a caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrecgel.display.tabular import latex_row
from fedrecgel.display.text import in_latex, one_line
from fedrecgel.errors import ConfigError
from fedrecgel.report.collect import Collected
from fedrecgel.runs.config import lookup
from fedrecgel.studies.cells import AGAINST, SHOWN, Against, Cell, table_metrics
from fedrecgel.studies.rows import POPULARITY
from fedrecgel.studies.statistics import ENOUGH_SEEDS

RANKINGS: dict[str, Against] = dict(zip(("candidates", "all"), AGAINST, strict=True))
MARKS = {"above": r"$^{\uparrow}$", "below": r"$^{\downarrow}$"}


@dataclass(frozen=True)
class PaperTable:
    """What is chosen; None for everything."""

    metrics: Sequence[str] = SHOWN
    methods: Sequence[str] | None = None
    datasets: Sequence[str] | None = None
    ranking: str = "candidates"
    caption: str | None = None


def latex_table(found: Collected, chosen: PaperTable, command: str) -> str:
    """The table, with a comment that says what made it.

    Raises:
        ConfigError: a method, data set or metric is not among the results.
    """
    against = lookup("ranking", chosen.ranking, RANKINGS)
    metrics = [lookup("metric", name, {name: name for name in table_metrics()}) for name in chosen.metrics]
    cells = _cells(found, against)
    datasets = [lookup("data set", name, {name: name for name in cells}) for name in chosen.datasets or cells]
    known = {label: label for name in datasets for label in cells[name]}
    methods = [lookup("method", name, known) for name in chosen.methods or known]
    if not methods:
        raise ConfigError("A table needs results. Found none ranked this way.")
    best = {
        (name, metric): max((_mean(cells[name].get(label), metric) for label in methods), default=None)
        for name in datasets
        for metric in metrics
    }
    lines = []
    for label in methods:
        entries = [
            _entry(cells[name].get(label), metric, best[name, metric]) for name in datasets for metric in metrics
        ]
        lines.append(latex_row([in_latex(label), *entries]))
    return "\n".join(
        [
            f"% {one_line(command)}",
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{in_latex(chosen.caption) if chosen.caption else _caption(found, against)}}}",
            r"\begin{tabular}{l" + "r" * (len(datasets) * len(metrics)) + "}",
            r"\toprule",
            *_header(datasets, metrics),
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _cells(found: Collected, against: Against) -> dict[str, dict[str, Mapping[str, Cell]]]:
    """By data set and label; those of the main table, or of plain runs."""
    cells: dict[str, dict[str, Mapping[str, Cell]]] = {}
    if found.main is not None:
        for row in found.main.rows:
            cells.setdefault(row.dataset, {})[row.label] = row.cells.get(against, {})
        return cells
    for result in found.plain_results(""):
        for one in result.rows:
            cells.setdefault(result.dataset, {})[one.label] = one.cells.get(against, {})
        popularity = result.popularity.get(against)
        if popularity and POPULARITY not in cells[result.dataset]:
            cells[result.dataset][POPULARITY] = {name: Cell(value, None) for name, value in popularity.items()}
    return cells


def _mean(of: Mapping[str, Cell] | None, metric: str) -> float:
    return of[metric].mean if of and metric in of else -1.0


def _entry(of: Mapping[str, Cell] | None, metric: str, best: float | None) -> str:
    if not of or metric not in of:
        return "--"
    cell = of[metric]
    text = f"{100 * cell.mean:.2f}"
    text = rf"\textbf{{{text}}}" if cell.mean == best else text
    spread = "" if cell.sd is None else rf" {{\scriptsize $\pm$ {100 * cell.sd:.2f}}}"
    mark = "" if cell.popularity is None else MARKS.get(cell.popularity.verdict, "")
    return f"{text}{mark}{spread}"


def _header(datasets: Sequence[str], metrics: Sequence[str]) -> list[str]:
    width = len(metrics)
    names = latex_row(["", *(rf"\multicolumn{{{width}}}{{c}}{{{in_latex(name)}}}" for name in datasets)])
    rules = " ".join(rf"\cmidrule(lr){{{2 + n * width}-{1 + (n + 1) * width}}}" for n in range(len(datasets)))
    return [names, rules, latex_row(["Method", *(in_latex(metric) for _ in datasets for metric in metrics)])]


def _caption(found: Collected, against: Against) -> str:
    ranked = "99 sampled candidates" if against == "candidates" else "all items"
    marks = (
        rf" {MARKS['above']} {MARKS['below']}: above or below popularity (paired test over users and seeds, at least "
        rf"{ENOUGH_SEEDS} seeds, Holm-corrected, 5\% level)."
    )
    tested = marks if found.main is not None else ""
    return rf"Percent, ranked among {ranked}; mean $\pm$ standard deviation over seeds. Bold: highest mean.{tested}"
