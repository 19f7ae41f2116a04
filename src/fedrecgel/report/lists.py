"""What recommended lists are made of: how much of the catalogue they show, and how much of them is popular anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from fedrecgel.display.tabular import Entry, Table
from fedrecgel.evaluation.coverage import POPULAR
from fedrecgel.report.collect import Collected, Group
from fedrecgel.studies.rows import POPULARITY

ABOUT = "How much of the catalogue anybody gets to see, and how much of what is shown is popular anyway."
SHOWN = (("coverage", "Coverage@10"), ("popular", "Popular@10"))
COLUMNS = ("items shown to anybody", "places for popular items")
NOTES = (
    "Items shown to anybody: the share of the catalogue that is among the first 10 of at least one user.",
    f"Places for popular items: the share of all places in these lists that goes to the {POPULAR:.0%} of items which "
    "most users train on. The row of clicks, where runs recorded it, is the share of these items in training data: a "
    "method far above it shows popular items more than users chose them.",
)


def list_tables(found: Collected) -> Iterator[Table]:
    """One for each data set whose runs know their lists."""
    for dataset in dict.fromkeys(group.dataset for group in found.shown_groups):
        groups = [group for group in found.shown_groups if group.dataset == dataset]
        lines = {group.label: [_mean(group, *place) for place in SHOWN] for group in groups}
        known = [number for number in range(len(SHOWN)) if any(line[number] is not None for line in lines.values())]
        if known:
            if POPULARITY not in {group.method for group in groups}:
                lines[POPULARITY] = [_first(groups, f"reference_{key}", name) for key, name in SHOWN]
            shares = (_mean(group, "popular", "clicks") for group in groups)
            if (clicks := next((share for share in shares if share is not None), None)) is not None:
                lines["clicks"] = [None, clicks]
            yield Table(
                f"lists-{dataset}",
                f"{dataset}: what the lists show",
                ["method", *(COLUMNS[number] for number in known)],
                [[Entry(name), *(_entry(line[number]) for number in known)] for name, line in lines.items()],
                [NOTES[number] for number in known],
            )


def _mean(group: Group, key: str, name: str) -> float | None:
    """Over seeds; None where runs of an earlier version or on nodes know nothing of their lists."""
    found = [(record.run.get(key) or {}).get(name) for record in group.records]
    known = [value for value in found if value is not None]
    return fmean(known) if known else None


def _first(groups: Sequence[Group], key: str, name: str) -> float | None:
    """Of the popularity that these runs measured beside themselves."""
    measured: Iterator[Mapping[str, Mapping[str, float]]] = (group.first.get(key) or {} for group in groups)
    return next((of_all[POPULARITY][name] for of_all in measured if POPULARITY in of_all), None)


def _entry(value: float | None) -> Entry:
    return Entry("–") if value is None else Entry(f"{100 * value:.1f}%", value)
