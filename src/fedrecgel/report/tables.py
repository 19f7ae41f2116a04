"""The tables of the experiments; every number comes from a reduced experiment or a record of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch

from fedrecgel.methods import METHODS
from fedrecgel.report.landscape_tables import landscape_tables
from fedrecgel.report.table import MARKS, RAISED, Entry, Table
from fedrecgel.studies.ablation import FULL, Ablation
from fedrecgel.studies.cells import AGAINST, METRICS, Cell, Row
from fedrecgel.studies.main_table import POPULARITY, MainTable
from fedrecgel.studies.quirks import ALL, CORRECTED, LEAKY, PICKED, Quirks
from fedrecgel.studies.sensitivity import SHOWN, Sensitivity
from fedrecgel.studies.statistics import LEVEL, Comparison

SIGNS = {1: "▲", -1: "▼", 0: "≈"}
SELECTIONS = {
    "last": "the last one",
    "validation": "the best on a validation item, which leaves the training data of every row",
    "test": "the best on the test item, which is cheating",
}
BOTH_RANKINGS = (*METRICS, *(f"{metric}, all items" for metric in METRICS))
VERSUS = "▲ ▼ ≈: significantly above, below, or not significantly different from popularity (same test)."
ONE_SEED = "A difference of a single seed has no sign: its luck cannot be told from an effect."


@singledispatch
def tables_of(document: object) -> list[Table]:
    """The tables of a reduced experiment."""
    raise TypeError(f"no tables for {type(document).__name__}")


def as_text(document: object) -> str:
    """All tables of a reduced experiment for a terminal, with their notes once."""
    tables = tables_of(document)
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    return "\n\n".join([*(table.text() for table in tables), "\n".join(f"- {note}" for note in notes)])


tables_of.register(landscape_tables)


@tables_of.register
def _main(document: MainTable) -> list[Table]:
    groups: dict[str, list[Row]] = {}
    for row in document.rows:
        groups.setdefault(row.dataset, []).append(row)
    overview = [_overview(document, groups)] if len(groups) > 1 else []
    return overview + [_main_of(document, dataset, rows) for dataset, rows in groups.items()]


def _overview(document: MainTable, groups: Mapping[str, Sequence[Row]]) -> Table:
    """All data sets side by side, popularity first."""
    labels = dict.fromkeys(row.label for rows in groups.values() for row in rows)
    most = max(len(row.seeds) for rows in groups.values() for row in rows)
    lines = []
    for label in sorted(labels, key=lambda label: label != POPULARITY):
        found = [next((row for row in rows if row.label == label), None) for rows in groups.values()]
        centralised = any(row is not None and row.kind == "centralised" for row in found)
        lines.append(
            [Entry(label + (", centralised" if centralised else "")), *(_overview_entry(row, most) for row in found)]
        )
    notes = [
        f"{' / '.join(SHOWN)} in percent among 99 candidates, mean over seeds; in brackets the published figures. "
        f"A raised number says over how many seeds a method has run where it is less than {most}. {VERSUS}",
        f"Test: {document.test}.",
    ]
    return Table("main-overview", "Every method on every data set", ["method", *groups], lines, notes, document.command)


def _overview_entry(row: Row | None, most: int) -> Entry:
    if row is None:
        return Entry("–")
    cells = [row.cells["candidates"][metric] for metric in SHOWN]
    text = " / ".join(f"{100 * cell.mean:.1f}{_sign(cell.popularity)}" for cell in cells)
    fewer = len(row.seeds) < most and not METHODS[row.method].draws_nothing
    seeds = f" {''.join(RAISED[digit] for digit in str(len(row.seeds)))}" if fewer else ""
    quoted = " / ".join(cell.published.value for cell in cells if cell.published)
    return Entry(text + seeds, cells[0].mean, note=quoted, hint=", ".join(row.folders))


def _main_of(document: MainTable, dataset: str, rows: Sequence[Row]) -> Table:
    columns = ["method", *BOTH_RANKINGS, "seeds", "s per run", "settings"]
    lines = [
        [
            Entry(row.label, hint=row.kind),
            *_both_rankings(row),
            _seeds(row),
            Entry(f"{row.seconds:.1f}", row.seconds),
            Entry(row.about, hint=", ".join(row.folders)),
        ]
        for row in rows
    ]
    notes = [
        "Percent, mean ± standard deviation over seeds; in brackets the published figure. Ranked among 99 sampled "
        "candidates, in the last four metric columns among all items.",
        f"{MARKS} {VERSUS}",
        f"Reported round: {' or '.join(sorted({SELECTIONS[row.selection] for row in rows}))}.",
        f"Test: {document.test}.",
        f"Published figures: {document.published}, quoted as printed.",
        *_left_out(document.left_out.get(dataset)),
        *document.caveats[dataset],
        *(f"Settings: {row.heading}" for row in rows if row.heading),
    ]
    return Table(f"main-{dataset}", f"{dataset}: HR and NDCG of every method", columns, lines, notes, document.command)


def _left_out(names: Sequence[str] | None) -> list[str]:
    return [f"Rows without results: {'; '.join(names)}."] if names else []


def _sign(found: Comparison | None) -> str:
    """Behind a number: which side of the other it is on, if a test could say."""
    return "" if found is None or found.one_seed else f" {SIGNS[found.sign]}"


def _both_rankings(row: Row) -> list[Entry]:
    return [cell_entry(row.cells.get(against, {}).get(metric)) for against in AGAINST for metric in METRICS]


def cell_entry(cell: Cell | None) -> Entry:
    """A metric in percent, with its marks, the published figure and the comparison with popularity on hover."""
    if cell is None:
        return Entry("–")
    text = f"{100 * cell.mean:.2f}" + ("" if cell.sd is None else f" ± {100 * cell.sd:.2f}")
    hint = ""
    if cell.popularity is not None:
        text += _sign(cell.popularity)
        hint = f"minus popularity: {difference_text(cell.popularity)}"
    note = "" if cell.published is None else _published(cell.published.value, cell.published.sd)
    return Entry(text, cell.mean, cell.mark, note, hint)


def _published(value: str, sd: str | None) -> str:
    return f"paper {value}" + (f" ± {sd}" if sd else "")


def difference_text(found: Comparison) -> str:
    """A difference in points with its interval, p and effect size."""
    p = found.p if found.p_adjusted is None else found.p_adjusted
    digits = 3 if (round(p, 3) < LEVEL) == (p < LEVEL) else 5
    tested = "one seed" if found.one_seed else f"p {'< 0.001' if p < 0.001 else f'= {p:.{digits}f}'}"
    return (
        f"{100 * found.difference:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}], "
        f"{tested}, d = {found.effect:+.3f}"
    )


def _seeds(row: Row) -> Entry:
    planned = len(row.seeds) + len(row.missing_seeds)
    short = f"{len(row.seeds)} of {planned}" if row.missing_seeds else str(len(row.seeds))
    return Entry(short, len(row.seeds), hint=f"seeds {', '.join(map(str, row.seeds))}")


@tables_of.register
def _ablation(document: Ablation) -> list[Table]:
    groups = dict.fromkeys((item.row.dataset, item.setting) for item in document.rows)
    tables = []
    for dataset, setting in groups:
        lines = []
        for item in document.rows:
            if (item.row.dataset, item.setting) != (dataset, setting):
                continue
            above = [item.above.get("candidates", {}).get(metric) for metric in SHOWN]
            lines.append(
                [
                    Entry(item.row.label, hint=", ".join(item.row.folders)),
                    *(cell_entry(item.row.cells["candidates"][metric]) for metric in METRICS),
                    *(_difference(found) if item.row.label != FULL else Entry("–") for found in above),
                    _seeds(item.row),
                ]
            )
        lines.append(_popularity_line([document.popularity[dataset][metric] for metric in METRICS]))
        columns = ["variant", *METRICS, *(f"full minus variant, {metric}" for metric in SHOWN), "seeds"]
        notes = [
            "Percent, mean ± standard deviation over seeds; in brackets the published figure. Differences in points "
            f"with a 95% bootstrap interval over users and seeds, adjusted p and Cohen's d over users. {ONE_SEED}",
            f"Test: {document.test}.",
            *_left_out(document.left_out.get(setting, {}).get(dataset)),
            *document.caveats[dataset],
        ]
        title = f"{dataset}, {setting} settings: which part needs SAM"
        tables.append(Table(f"ablation-{dataset}-{setting}", title, columns, lines, notes, document.command))
    return tables


def _popularity_line(values: Iterable[float | None]) -> list[Entry]:
    """What every table shows beside its rows: metrics, no difference, one seed."""
    metrics = (Entry("–") if value is None else Entry(f"{100 * value:.2f}", value) for value in values)
    return [Entry("popularity"), *metrics, *(Entry("–") for _ in SHOWN), Entry("1", 1)]


def _difference(found: Comparison | None) -> Entry:
    if found is None:
        return Entry("–")
    difference, _, rest = difference_text(found).partition("], ")
    return Entry(f"{difference}]{_sign(found)}", found.difference, note=rest)


@tables_of.register
def _quirks(document: Quirks) -> list[Table]:
    tables = []
    for dataset in dict.fromkeys(item.row.dataset for item in document.rows):
        lines = [
            [
                Entry(f"{item.row.method}, {item.row.label}", hint=", ".join(item.row.folders)),
                *_both_rankings(item.row),
                *(_difference(item.worth.get("candidates", {}).get(metric)) for metric in SHOWN),
                _seeds(item.row),
            ]
            for item in document.rows
            if item.row.dataset == dataset
        ]
        popularity = document.popularity[dataset]
        lines.append(_popularity_line([popularity[against].get(metric) for against in AGAINST for metric in METRICS]))
        columns = ["method and quirk", *BOTH_RANKINGS, *(f"minus corrected, {metric}" for metric in SHOWN), "seeds"]
        notes = [
            f"'{CORRECTED}' has the settings of the main table, over the seeds given here. Other rows change what they "
            f"name and nothing else: '{LEAKY}' never draws a held-out item as a negative, '{ALL}' is this and every "
            f"value of the native variant, rates and sizes included. '{PICKED}' has all this at default instead of "
            "tuned settings, trains on the validation item, too, and reports the best round on the test item, which "
            "is cheating: what some of the released codes do, not each.",
            "Percent, mean ± standard deviation over seeds. Differences in points with a 95% bootstrap interval over "
            f"users and seeds, adjusted p and Cohen's d over users. {ONE_SEED}",
            f"Test: {document.test}.",
            *_left_out(document.left_out.get(dataset)),
        ]
        title = f"{dataset}: what quirks of the released codes are worth"
        tables.append(Table(f"quirks-{dataset}", title, columns, lines, notes, document.command))
    return tables


@tables_of.register
def _sensitivity(document: Sensitivity) -> list[Table]:
    tables = []
    for dataset, setting, radius in dict.fromkeys((p.row.dataset, p.setting, p.radius) for p in document.points):
        points = [p for p in document.points if (p.row.dataset, p.setting, p.radius) == (dataset, setting, radius)]
        other = "rho_co" if radius == "rho_ur" else "rho_ur"
        lines = [
            [
                Entry(f"{point.value:g}", point.value, hint=", ".join(point.row.folders)),
                *(cell_entry(point.row.cells["candidates"][metric]) for metric in SHOWN),
                *(_difference(point.above_zero.get(metric)) for metric in SHOWN),
                _seeds(point.row),
            ]
            for point in points
        ]
        lines.append(_popularity_line([document.popularity[dataset][metric] for metric in SHOWN]))
        columns = [radius, *SHOWN, *(f"minus {radius} = 0, {metric}" for metric in SHOWN), "seeds"]
        title = f"{dataset}, {setting} settings: {radius}, with {other} = {points[0].fixed:g}"
        notes = [f"Percent among 99 candidates. Test: {document.test}. {ONE_SEED}"]
        tables.append(
            Table(f"sensitivity-{dataset}-{setting}-{radius}", title, columns, lines, notes, document.command)
        )
    return tables
