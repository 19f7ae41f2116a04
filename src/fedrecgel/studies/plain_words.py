"""The main table of a data set in three sentences that need no statistics to be read."""

from __future__ import annotations

from collections.abc import Sequence

from fedrecgel.studies.cells import Against, Row
from fedrecgel.studies.leaks import level_sentences
from fedrecgel.studies.rows import POPULARITY, points_text
from fedrecgel.studies.statistics import Comparison, Verdict

METRIC = "HR@10"
REPEATS, LEAK = "seen-first", 0.01
"""What ranks the own history first; so far above popularity, held-out items must stand in it.

Reduced tables of earlier versions tell a leak by that alone.
"""
GROUPS: dict[Verdict, str] = {
    "above": "better",
    "alike": "no clear difference",
    "open": "open",
    "below": "worse",
    "untested": "too few seeds to say",
}
"""Verdicts against popularity in the order and the words of the second sentence."""


def main_sentences(rows: Sequence[Row]) -> list[str]:
    """How far popularity and the best federated method get, who beats popularity, and what centralised data buy.

    Where runs recorded that held-out items leaked, or repeating the history ranks them high, that is said second.
    """
    federated = [row for row in rows if row.kind == "federated"]
    popularity = next((row for row in rows if row.method == POPULARITY), None)
    if not federated or popularity is None:
        return []
    best = max(federated, key=_share)
    repeats = next((row for row in rows if row.method == REPEATS), None)
    told = level_sentences(
        _percent(popularity),
        "100",
        _reached(popularity, best),
        leak=any(row.leak for row in rows) or (repeats is not None and _share(repeats) > _share(popularity) + LEAK),
        repeats="" if repeats is None else f"{REPEATS}, which repeats the history, reaches {_percent(repeats)}",
    )
    told.append(_against_popularity(federated))
    ceilings = [row for row in rows if row.kind == "centralised"]
    if ceilings:
        told.append(_ceiling(max(ceilings, key=_share), best))
    return [sentence for sentence in told if sentence]


def _share(row: Row, against: Against = "candidates") -> float:
    cell = row.cells.get(against, {}).get(METRIC)
    return 0.0 if cell is None else cell.mean


def _percent(row: Row, against: Against = "candidates") -> str:
    return f"{100 * _share(row, against):.0f}%"


def _reached(popularity: Row, best: Row) -> str:
    sentence = f"the best federated method, {best.label}, {_percent(best)}"
    if "catalogue" in popularity.cells and "catalogue" in best.cells:
        sides = " and ".join(_percent(row, "catalogue") for row in (popularity, best))
        sentence += f" (among all items {sides})"
    return sentence


def _against_popularity(federated: Sequence[Row]) -> str:
    found = {row.label: row.cells["candidates"][METRIC].popularity for row in federated}
    tested = {label: one for label, one in found.items() if one is not None}
    if not tested:
        return ""
    told = [
        f"{text}: {', '.join(f'{name} ({points_text(one)})' for name, one in group.items())}"
        for verdict, text in GROUPS.items()
        if (group := _of(tested, verdict))
    ]
    none = "" if _of(tested, "above") else "no method is clearly better; "
    return f"Against popularity, in points of {METRIC}, {none}{'; '.join(told)}."


def _of(found: dict[str, Comparison], verdict: Verdict) -> dict[str, Comparison]:
    """Those with this verdict, the largest difference first."""
    names = sorted(found, key=lambda name: -found[name].difference)
    return {name: found[name] for name in names if found[name].verdict == verdict}


def _ceiling(ceiling: Row, best: Row) -> str:
    """What the same data reach in one place; without a test, as none was made."""
    gap = 100 * (_share(ceiling) - _share(best))
    if gap < 0:
        return f"With all data in one place, the best ranker, {ceiling.label}, reaches {_percent(ceiling)}: not more."
    return (
        f"With all data in one place, the best ranker, {ceiling.label}, reaches {_percent(ceiling)}: keeping them on "
        f"devices costs {gap:.1f} points."
    )
