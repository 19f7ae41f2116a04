"""What a model recommends to three of its users, with titles: the only place of a report that opens a model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedrecgel.display.tabular import Entry, Table
from fedrecgel.errors import FedrecgelError
from fedrecgel.methods import METHODS
from fedrecgel.report.collect import Collected, Group
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.recommend import Recommendation
from fedrecgel.runs.result import Result, open_run
from fedrecgel.studies.cells import SHOWN
from fedrecgel.studies.records import Record

ABOUT = "Three users of the best run whose model was kept: with a short history, one in the middle, and a long one."
SHOWN_ITEMS, RECOMMENDED = 4, 5
LARGEST_MODEL = 300_000_000
"""Bytes; larger ones are not opened for an example."""


def example_tables(found: Collected) -> Iterator[Table]:
    """One for each data set that has a run with its model."""
    groups = found.shown_groups
    for dataset in dict.fromkeys(group.dataset for group in groups):
        kept = [(group, one) for group in groups if group.dataset == dataset for one in kept_models(found, group)]
        if kept:
            group, record = max(kept, key=lambda pair: float((pair[1].run["metrics"] or {}).get(SHOWN[1]) or 0.0))
            if (result := opened_model(found, record)) is not None:
                yield _table(result, dataset, group, record)


def opened_model(found: Collected, record: Record) -> Result | None:
    """A run with its model; None where it cannot be read, which is no reason for a report to fail."""
    try:
        return open_run(found.root / record.folder)
    except FedrecgelError:
        return None


def kept_models(found: Collected, group: Group) -> list[Record]:
    """Runs whose model is there and whose method is one of ours: a file that somebody names is not run here."""
    if group.method not in METHODS:
        return []
    models = [(record, RunFolder(found.root / record.folder)) for record in group.records]
    return [
        record
        for record, folder in models
        if folder.server.exists()
        and folder.clients.exists()
        and folder.server.stat().st_size + folder.clients.stat().st_size < LARGEST_MODEL
    ]


def _table(result: Result, dataset: str, group: Group, record: Record) -> Table:
    sizes = np.diff(result.train.ptr)
    order = np.argsort(sizes, kind="stable")
    places = [int(order[round(share * (len(order) - 1))]) for share in (0.1, 0.5, 0.9)]
    lines = []
    for place in dict.fromkeys(places):
        user = result.user_ids[place]
        best = result.recommend(user, RECOMMENDED)
        lines.append(
            [
                Entry(str(user)),
                Entry(str(sizes[place]), float(sizes[place])),
                Entry(", ".join(_latest(result, place))),
                Entry(", ".join(map(_title, best))),
            ]
        )
    columns = ["user", "items", "latest of them", "recommended"]
    notes = [f"{group.label}, seed {record.run['seed']}; titles where the data have them."]
    return Table(f"examples-{dataset}", f"{dataset}: what {group.label} recommends", columns, lines, notes)


def _latest(result: Result, place: int) -> list[str]:
    """The last items of a user, or some where the data have no order."""
    begin, end = int(result.train.ptr[place]), int(result.train.ptr[place + 1])
    items = result.train.items[begin:end]
    if result.train.recency is not None:
        items = items[np.argsort(result.train.recency[begin:end], kind="stable")]
    names = result.item_titles or result.item_ids
    return [str(names[int(item)]) for item in items[:SHOWN_ITEMS]]


def _title(one: Recommendation) -> str:
    return one.title or str(one.item)
