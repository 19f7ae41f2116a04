"""Who gains: users by the length of their history and by how popular their held-out item is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from fedrecgel.data.item_sets import ItemSets
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.errors import FedrecgelError
from fedrecgel.report.collect import Collected, Group
from fedrecgel.report.examples import kept_models, opened_model
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.ranks_file import read_ranks
from fedrecgel.runs.result import Result
from fedrecgel.storage import read_json
from fedrecgel.studies.cells import user_metrics
from fedrecgel.studies.rows import POPULARITY
from fedrecgel.studies.surroundings import USERS, UserFacts

METRIC = "HR@10"
Users = npt.NDArray[np.bool_]
ABOUT = (
    "The same hits by the length of a user's history and by how popular the held-out item is: a method that repeats "
    "popularity gains nothing on rare items. No test is made here."
)


@dataclass(frozen=True)
class Thirds:
    """Users in three parts of about the same size."""

    names: tuple[str, str, str]
    parts: tuple[Users, Users, Users]
    """Which users."""


def thirds(values: Sequence[int], words: tuple[str, str, str]) -> Thirds:
    """Cut where the values allow it: users with the same value stay together."""
    numbers = np.asarray(values)
    low, high = np.quantile(numbers, [1 / 3, 2 / 3], method="lower")
    names = (f"{words[0]}, up to {low}", f"{words[1]}, up to {high}", f"{words[2]}, more")
    return Thirds(names, (numbers <= low, (numbers > low) & (numbers <= high), numbers > high))


def people_tables(found: Collected) -> Iterator[Table]:
    """One for each data set whose users are known."""
    known = {facts.test: facts for path in sorted((found.root / USERS).glob("*.json")) if (facts := _read(path))}
    for dataset in dict.fromkeys(group.dataset for group in found.shown_groups):
        groups = [group for group in found.shown_groups if group.dataset == dataset]
        known |= _of_models(found, groups, known)
        rows = {group.label: line for group in groups if (line := _line(found, group, known)) is not None}
        if rows:
            yield _table(dataset, groups, rows)


def _read(path: Path) -> UserFacts | None:
    try:
        return read_json(path, UserFacts)
    except FedrecgelError:
        return None


def _of_models(found: Collected, groups: Sequence[Group], known: Mapping[str, UserFacts]) -> dict[str, UserFacts]:
    """Of runs that no experiment described: from the rows that a run keeps beside its model."""
    made: dict[str, UserFacts] = {}
    for group in groups:
        for record in kept_models(found, group):
            ranks = RunFolder(found.root / record.folder).ranks
            if not ranks.exists() or read_ranks(ranks, run=record.run.get("run")).test in {*known, *made}:
                continue
            result = opened_model(found, record)
            facts = None if result is None else facts_of_model(result)
            if facts is not None:
                made[facts.test] = facts
    return made


def facts_of_model(result: Result) -> UserFacts | None:
    """What a split says of its users, from a finished run; None if more or less than one item was held out."""
    train, observed = result.train, result.observed
    if observed is None or not bool((np.diff(observed.ptr) - np.diff(train.ptr) == 1).all()):
        return None
    held_out = np.setdiff1d(_keys(observed), _keys(train), assume_unique=True) % train.n_items
    if len(held_out) != len(train.ptr) - 1:
        return None
    trained = np.bincount(train.items, minlength=train.n_items)
    return UserFacts(result.ranks.test, np.diff(train.ptr).tolist(), trained[held_out].tolist())


def _keys(sets: ItemSets) -> npt.NDArray[np.int64]:
    owners = np.repeat(np.arange(len(sets.ptr) - 1, dtype=np.int64), np.diff(sets.ptr))
    keys: npt.NDArray[np.int64] = owners * sets.n_items + sets.items
    return keys


@dataclass(frozen=True)
class _Line:
    names: tuple[str, ...]
    shares: tuple[float, ...]


def _line(found: Collected, group: Group, known: dict[str, UserFacts]) -> _Line | None:
    """Hits of each third, mean over seeds; None where a split is not described or ranks are missing."""
    seeds: list[list[float]] = []
    names: tuple[str, ...] = ()
    for record in group.records:
        folder = RunFolder(found.root / record.folder)
        if not folder.ranks.exists():
            return None
        ranks = read_ranks(folder.ranks, run=record.run.get("run"))
        facts = known.get(ranks.test)
        hits = user_metrics(ranks, "expected").get("candidates", {}).get(METRIC)
        if facts is None or hits is None or len(facts.history) != len(hits):
            return None
        cuts = [
            thirds(facts.history, ("short history", "middle history", "long history")),
            thirds(facts.popularity, ("rare item", "middling item", "popular item")),
        ]
        names = names or tuple(name for cut in cuts for name in cut.names)
        seeds.append([float(hits[part].mean()) if part.any() else np.nan for cut in cuts for part in cut.parts])
    return _Line(names, tuple(fmean(column) for column in zip(*seeds, strict=True)))


def _table(dataset: str, groups: Sequence[Group], rows: dict[str, _Line]) -> Table:
    floor = next((rows[group.label] for group in groups if group.method == POPULARITY and group.label in rows), None)
    lines = []
    for group in groups:
        if group.label not in rows:
            continue
        own = rows[group.label]
        entries = [
            Entry(
                "–" if np.isnan(share) else f"{100 * share:.1f}",
                share,
                note=""
                if floor is None or floor is own
                else f"{round(100 * (share - floor.shares[place]), 1) + 0.0:+.1f}",
            )
            for place, share in enumerate(own.shares)
        ]
        lines.append([Entry(group.label), *entries])
    columns = ["method", *next(iter(rows.values())).names]
    versus = "" if floor is None else "; below it the difference from popularity, in points"
    notes = [
        f"{METRIC} in percent among candidates, mean over seeds{versus}. "
        "Thirds of users by the number of their training items, and by how many users train on the held-out item; "
        "limits are those of the first split.",
    ]
    return Table(f"people-{dataset}", f"{dataset}: who gains", columns, lines, notes)
