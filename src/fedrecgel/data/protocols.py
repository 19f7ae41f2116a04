"""Kinds of splits beyond leave-one-out: several held-out items per user.

In all of them a held-out item is never among the user's training items: all rows of the pair leave the training data.
The first step marks each row as training, validation or test; the second, `_assemble`, is the same for all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from fedrecgel.data.given import join_test_file
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.item_sets import IntArray, ItemSets
from fedrecgel.data.split import (
    LAST_N,
    OF_GIVEN,
    RATIO,
    TEMPORAL,
    Kind,
    Split,
    SplitSettings,
    check_room,
    check_rules,
    draw_candidates,
    latest_first,
    leave_one_out,
)
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, DataError, unknown

TRAIN, VALIDATION, TEST = range(3)
Parts = npt.NDArray[np.int8]
"""TRAIN, VALIDATION or TEST of each row."""
TAKEN_BY = {"n": ("last-n",), "share": ("ratio", "temporal", "given"), "test": ("given",)}
"""Settings that belong to some kinds only."""


def make_split(interactions: Interactions, settings: SplitSettings | None = None, **changes: object) -> Split:
    """Hold items out, as `split.kind` says.

    Args:
        interactions: the data.
        settings: how.
        **changes: fields of `SplitSettings`, instead of `settings`.

    Raises:
        ConfigError: a kind or rule is unknown, or a setting belongs to another kind.
        DataError: nothing could be held out, or the catalogue has too few items to rank against.
    """
    if settings is not None and changes:
        raise TypeError("give settings or changes, not both")
    settings = settings or SplitSettings(**changes)  # type: ignore[arg-type]  # a wrong name raises TypeError
    if settings.kind not in get_args(Kind):
        raise ConfigError(unknown("split.kind", settings.kind, get_args(Kind)))
    for name, kinds in TAKEN_BY.items():
        if getattr(settings, name) is not None and settings.kind not in kinds:
            raise ConfigError(f"split.{name} belongs to split.kind = {' or '.join(kinds)}. Found '{settings.kind}'.")
    if settings.kind == "leave-one-out":
        return leave_one_out(interactions, settings)
    check_rules(settings)
    if settings.share is not None and not 0 < settings.share < 1:
        raise ConfigError(f"split.share should lie between 0 and 1. Found {settings.share}.")
    if settings.n is not None and settings.n < 1:
        raise ConfigError(f"split.n should be at least 1. Found {settings.n}.")
    if settings.kind != "given":
        mark = {"last-n": _last_n, "ratio": _ratio, "temporal": _temporal}[settings.kind]
        return _assemble(interactions, settings, mark(interactions, settings), [])
    parts = np.zeros(len(interactions), dtype=np.int8)
    if settings.validation:  # as a share of what there is to train on; the test items are as published
        share = settings.share or OF_GIVEN
        parts[_random_share(interactions, replace(settings, validation=False), share) == TEST] = VALIDATION
    joined, notes = join_test_file(interactions, settings)
    more = np.full(len(joined) - len(interactions), TEST, dtype=np.int8)
    return _assemble(joined, settings, np.concatenate([parts, more]), notes)


def _last_n(interactions: Interactions, settings: SplitSettings) -> Parts:
    """The n latest distinct items; validation: the n before."""
    n = settings.n or LAST_N
    pairs = _Pairs(interactions, latest_first(interactions, settings))
    return pairs.mark(np.minimum(n, pairs.sizes - 1), n if settings.validation else 0)


def _ratio(interactions: Interactions, settings: SplitSettings) -> Parts:
    """A random share of each user's distinct items, at least one; validation: as many again."""
    return _random_share(interactions, settings, settings.share or RATIO)


def _random_share(interactions: Interactions, settings: SplitSettings, share: float) -> Parts:
    rows = np.argsort(interactions.users, kind="stable")
    pairs = _Pairs(interactions, rows, Draws(settings.seed))
    held_out = np.minimum(np.maximum(1, np.floor(share * pairs.sizes + 1e-9)), pairs.sizes - 1).astype(np.int64)
    return pairs.mark(held_out, held_out if settings.validation else 0)


def _temporal(interactions: Interactions, settings: SplitSettings) -> Parts:
    """Rows from a time on that is the same for all, the latest share of them; validation: the share before."""
    if interactions.times is None:
        raise DataError(
            f"split.kind = temporal needs timestamps, and '{interactions.name}' has none. "
            f"Name their column with --set data.timestamp=… or choose another kind."
        )
    share = settings.share or TEMPORAL
    if share * (1 + settings.validation) >= 1:
        raise ConfigError(f"split.share should leave rows to train on. Found {share} for test and for validation.")
    ordered = np.sort(interactions.times)
    begins, earlier = (
        ordered[-max(1, int(share * many * len(ordered) + 1e-9))] for many in (1, 1 + settings.validation)
    )
    parts = np.zeros(len(interactions), dtype=np.int8)
    parts[interactions.times >= begins] = TEST  # what happened at one time stays together
    if settings.validation:
        parts[(interactions.times >= earlier) & (interactions.times < begins)] = VALIDATION
    return parts


class _Pairs:
    """Distinct pairs of user and item, in the order in which rows first show them or in a random one."""

    def __init__(self, interactions: Interactions, rows: IntArray, draws: Draws | None = None) -> None:
        users = interactions.users.astype(np.int64)
        keys, first, self._pair_of_row = np.unique(
            (users * interactions.n_items + interactions.items)[rows], return_index=True, return_inverse=True
        )
        self._rows = rows
        owner = keys // interactions.n_items
        self.sizes: IntArray = np.bincount(owner, minlength=interactions.n_users)
        """Distinct items of each user."""
        start = np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)
        precedence: npt.NDArray[np.generic] = first
        if draws is not None:  # keys are sorted, so numbers do not depend on the order of rows
            precedence = draws.uniform("split/ratio", 0, owner, keys % interactions.n_items)
        place = np.empty(len(keys), dtype=np.int64)
        place[np.lexsort((precedence, owner))] = np.arange(len(keys)) - start
        self._owner, self._place = owner, place

    def mark(self, test: IntArray, validation: IntArray | int) -> Parts:
        """The first `test` pairs of each user, then up to `validation` more; one at least remains to train on."""
        ends = np.minimum(test + validation, self.sizes - 1)[self._owner]
        of_pair = np.where(self._place < test[self._owner], TEST, np.where(self._place < ends, VALIDATION, TRAIN))
        parts = np.empty(len(self._rows), dtype=np.int8)
        parts[self._rows] = of_pair[self._pair_of_row]
        return parts


def _assemble(interactions: Interactions, settings: SplitSettings, parts: Parts, notes: list[str]) -> Split:
    """Training rows, held-out items and candidates from the part of each row."""
    trains = np.bincount(interactions.users[parts == TRAIN], minlength=interactions.n_users) > 0
    if not trains.all():
        dropped = int((~trains).sum())
        notes = [*notes, f"{dropped:,} users have no row to train on and were dropped."]
        interactions, kept = _only_users(interactions, trains)
        parts = parts[kept]
    n_users, n_items = interactions.n_users, interactions.n_items
    users, items = interactions.users.astype(np.int64), interactions.items
    order = latest_first(interactions, settings)
    training = order[parts[order] == TRAIN]
    ordered = interactions.times is not None or settings.untimed == "file-order"
    merge = ItemSets.from_latest_first if ordered else ItemSets.from_pairs
    train = merge(interactions.users[training], items[training], n_users, n_items)
    keys = users * n_items + items
    taken = np.unique(keys[parts == TRAIN])
    held_out, repeats = {}, 0
    for part in (VALIDATION, TEST):
        found = np.unique(keys[parts == part])
        fresh = np.setdiff1d(found, taken, assume_unique=True)
        repeats += len(found) - len(fresh)
        held_out[part] = np.searchsorted(fresh, np.arange(n_users + 1) * n_items), fresh % n_items
        taken = np.union1d(taken, fresh)
    if repeats:
        notes = [
            *notes,
            f"{repeats:,} held-out pairs occur earlier, too, and are not tested: they stay where they were.",
        ]
    (validation_ptr, validation), (test_ptr, test) = held_out[VALIDATION], held_out[TEST]
    for name, found in (("test", test), ("validation", validation if settings.validation else test)):
        if not len(found):
            raise DataError(
                f"split.kind = {settings.kind} should hold out {name} items. Found none of a user that also trains. "
                f"Add data, or change split.share or split.n."
            )
    observed = ItemSets.from_pairs(interactions.users, items, n_users, n_items)
    check_room(interactions, observed, settings.candidates)
    blind = settings.validation
    return Split(
        interactions,
        settings,
        train,
        observed,
        test,
        draw_candidates("test", observed, settings),
        validation if blind else None,
        draw_candidates("validation", observed, settings) if blind else None,
        test_ptr=test_ptr,
        validation_ptr=validation_ptr if blind else None,
        notes=notes,
    )


def _only_users(interactions: Interactions, kept: npt.NDArray[np.bool_]) -> tuple[Interactions, npt.NDArray[np.bool_]]:
    """The rows of these users, who are numbered anew, and which rows they are; the catalogue stays."""
    rows = kept[interactions.users]
    times = None if interactions.times is None else interactions.times[rows]
    names: list[Any] = [interactions.user_ids[user] for user in np.flatnonzero(kept)]
    numbers = (np.cumsum(kept, dtype=np.int32) - 1)[interactions.users[rows]]
    items = interactions.items[rows]
    return replace(interactions, users=numbers, items=items, times=times, user_ids=names), rows
