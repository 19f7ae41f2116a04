"""A split as a benchmark publishes it: one file to train on, one to test on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedrecgel.data.columns import ColumnNames, Columns, pick_columns
from fedrecgel.data.files import read_table
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.split import SplitSettings
from fedrecgel.errors import ConfigError, DataError


def join_test_file(interactions: Interactions, settings: SplitSettings) -> tuple[Interactions, list[str]]:
    """The rows to train on, then those to test on, with one catalogue; and what was left out, a sentence each.

    Users are matched by id. One that has nothing to train on cannot be tested.

    Raises:
        ConfigError: no file is named.
        DataError: it cannot be read, or its ids are of another type.
    """
    if settings.test is None:
        raise ConfigError("split.kind = given needs the file to test on. Name it with --set split.test=…")
    said: list[str] = []
    read = _read(settings.test, interactions, said)
    users, items = (column.to_pylist() for column in (read.users, read.items))
    for role, theirs, ours in (("user", users, interactions.user_ids), ("item", items, interactions.item_ids)):
        if type(theirs[0]) is not type(ours[0]):
            raise DataError(
                f"Ids of {role}s should be integers in both files or text in both. Found {ours[0]!r} to train on and "
                f"{theirs[0]!r} in {settings.test}."
            )
    numbers: dict[Any, int] = {name: number for number, name in enumerate(interactions.user_ids)}
    kept = [row for row, user in enumerate(users) if user in numbers]
    if not kept:
        raise DataError(f"Users of {settings.test} should have rows to train on. Found none of them there.")
    catalogue = sorted({*interactions.item_ids, *(items[row] for row in kept)})
    place = {item: number for number, item in enumerate(catalogue)}
    known_items = np.array([place[item] for item in interactions.item_ids], dtype=np.int32)[interactions.items]
    test_items = np.array([place[items[row]] for row in kept], dtype=np.int32)
    owners = np.array([numbers[users[row]] for row in kept], dtype=np.int32)
    times, titles = interactions.times, interactions.item_titles
    if times is not None:  # test rows are later than all others; their own order does not matter
        times = np.concatenate([times, np.full(len(kept), times.max())])
    if titles is not None:
        known = dict(zip(interactions.item_ids, titles, strict=True))
        titles = [known.get(item, str(item)) for item in catalogue]
    joined = replace(
        interactions,
        users=np.concatenate([interactions.users, owners]),
        items=np.concatenate([known_items, test_items]),
        times=times,
        item_ids=catalogue,
        item_titles=titles,
        assumed=[*interactions.assumed, *said],
    )
    strangers = len({*users} - numbers.keys())
    sentence = (
        f"{strangers:,} users of {settings.test} have fewer than {interactions.min_interactions} rows to train on "
        f"(data.min_interactions) and are not tested."
    )
    return joined, [sentence] if strangers else []


def _read(path: str, interactions: Interactions, said: list[str]) -> Columns:
    """The test file, with columns named as those of the file to train on."""
    how = interactions.loaded_as
    names = ColumnNames(*(how.get(role) for role in ("user", "item")))
    columns = how["columns"].split(",") if "columns" in how else None
    table = read_table(path, names, ("user", "item"), columns=columns, say=said.append)
    return pick_columns(table, names, path)
