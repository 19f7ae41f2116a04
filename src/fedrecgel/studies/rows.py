"""How rows and differences are written: as entries of tables, lines of charts, words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedrecgel.display.chart import Difference
from fedrecgel.display.tabular import Entry
from fedrecgel.studies.cells import AGAINST, SHOWN, Against, Cell, Row, table_metrics
from fedrecgel.studies.statistics import ENOUGH_SEEDS, LEVEL, MARGIN, Comparison, Verdict

SIGNS: dict[Verdict, str] = {"above": " ▲", "below": " ▼", "alike": " ≈", "open": " ?", "untested": ""}
ALIKE = "no clear difference"
WORDS: dict[Verdict, str] = {"above": "above", "below": "below", "alike": ALIKE, "open": "open", "untested": ""}
INTERVALS = "Intervals hold for all comparisons of a family together, with 95%."
FEW_SEEDS = f"Below {ENOUGH_SEEDS} seeds there is no sign: the luck of a seed cannot be told from an effect."
POPULARITY = "popularity"


def both_rankings_columns() -> list[str]:
    """Headers of every metric among candidates, then among all items."""
    return [*table_metrics(), *(f"{metric}, all items" for metric in table_metrics())]


def both_rankings(row: Row) -> list[Entry]:
    """The entries below them."""
    return [cell_entry(row.cells.get(against, {}).get(metric)) for against in AGAINST for metric in table_metrics()]


def among_candidates(row: Row, metrics: Iterable[str]) -> list[Entry]:
    """Metrics among candidates."""
    return [cell_entry(row.cells["candidates"].get(metric)) for metric in metrics]


def cell_entry(cell: Cell | None) -> Entry:
    """A metric in percent, with its marks, the published figure and the comparison with popularity on hover."""
    if cell is None:
        return Entry("–")
    text = f"{100 * cell.mean:.2f}" + ("" if cell.sd is None else f" ± {100 * cell.sd:.2f}")
    hint = ""
    if cell.popularity is not None:
        text += sign_text(cell.popularity)
        hint = f"minus popularity: {difference_text(cell.popularity)}"
    note = "" if cell.published is None else _published(cell.published.value, cell.published.sd)
    return Entry(text, cell.mean, cell.mark, note, hint)


def _published(value: str, sd: str | None) -> str:
    return f"paper {value}" + (f" ± {sd}" if sd else "")


def popularity_line(values: Iterable[float | None]) -> list[Entry]:
    """What every table shows below its rows: metrics, no difference, one seed."""
    metrics = (Entry("–") if value is None else Entry(f"{100 * value:.2f}", value) for value in values)
    return [Entry(POPULARITY), *metrics, *(Entry("–") for _ in SHOWN), Entry("1", 1)]


def seeds_entry(row: Row) -> Entry:
    """Over how many seeds, and of how many if some are missing."""
    planned = len(row.seeds) + len(row.missing_seeds)
    short = f"{len(row.seeds)} of {planned}" if row.missing_seeds else str(len(row.seeds))
    return Entry(short, len(row.seeds), hint=f"seeds {', '.join(map(str, row.seeds))}")


def left_out_notes(names: Sequence[str] | None) -> list[str]:
    """A note on rows without results, if there are any."""
    return [f"Rows without results: {'; '.join(names)}."] if names else []


def signs_note(other: str) -> str:
    """What the signs behind numbers mean."""
    return (
        f"▲ ▼: above or below {other}. ≈: {ALIKE}, the interval lies within ±{100 * MARGIN:g} points. ?: open, it is "
        f"wider. {FEW_SEEDS}"
    )


def sign_text(found: Comparison | None) -> str:
    """Behind a number: which side of the other it is on, if a test could say."""
    return "" if found is None else SIGNS[found.verdict]


def verdict_text(found: Comparison) -> str:
    """The verdict in words."""
    few = f"{found.seeds} seed{'s' if found.seeds > 1 else ''}, not tested"
    return WORDS[found.verdict] or few


def difference_entry(found: Comparison | None) -> Entry:
    """A difference in points with its sign; the test stands in the note."""
    if found is None:
        return Entry("–")
    difference, _, rest = difference_text(found).partition("], ")
    return Entry(f"{difference}]{sign_text(found)}", found.difference, note=rest)


def difference_text(found: Comparison) -> str:
    """A difference in points with its interval, p and effect size."""
    tested = verdict_text(found) if found.verdict == "untested" else f"p {_p_text(found)}"
    return (
        f"{100 * found.difference:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}], "
        f"{tested}, d = {found.effect:+.3f}"
    )


def _p_text(found: Comparison) -> str:
    """The adjusted p, never rounded to the level."""
    p = found.p if found.p_adjusted is None else found.p_adjusted
    digits = 3 if (round(p, 3) < LEVEL) == (p < LEVEL) else 5
    return "< 0.001" if p < 0.001 else f"= {p:.{digits}f}"


def points_text(found: Comparison, *, interval: bool = False) -> str:
    """A difference in points, in short; what is open has its interval."""
    shown = interval or found.verdict == "open"
    reach = f" [{100 * found.low:+.1f}, {100 * found.high:+.1f}]" if shown else ""
    return f"{100 * found.difference:+.1f}{reach}"


def difference_line(name: str, found: Comparison) -> Difference:
    """A line of a forest plot."""
    difference, low, high = (100 * value for value in (found.difference, found.low, found.high))
    details = [
        ("difference", f"{difference:+.2f}"),
        ("95% interval", f"{low:+.2f} … {high:+.2f}"),
        ("verdict", verdict_text(found)),
        ("adjusted p", _p_text(found).removeprefix("= ")),
        ("Cohen's d", f"{found.effect:+.3f}"),
        ("users × seeds", f"{found.users:,} × {found.seeds}"),
    ]
    return Difference(name, difference, low, high, found.sign, details)


def compared(found: Mapping[Against, Mapping[str, Comparison]], metric: str) -> Comparison | None:
    """The comparison among candidates, if there is one."""
    return found.get("candidates", {}).get(metric)
