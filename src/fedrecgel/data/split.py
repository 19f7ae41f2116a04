"""Leave-one-out: training rows, one test item per user, fixed candidates to rank it against."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Literal, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from fedrecgel.data.interactions import Interactions
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, DataError, unknown

Ties = Literal["lowest-item", "random", "last-row"]
Untimed = Literal["random", "file-order"]
NO_ITEM = -1
BLOCK = 20_000
"""Users whose candidates are drawn at once."""


@dataclass(frozen=True)
class SplitSettings:
    """How interactions become training rows and held-out items."""

    seed: Annotated[int, Meta(ge=0)] = 42
    """Seed of ties, random hold-out and candidates; apart from the training seed, so that runs with other
    training seeds are compared on the same split (42 is the seed of the published preprocessing)."""
    ties: Ties = "lowest-item"
    """Which of several interactions at the latest time is held out: the one with the lowest item number (the published
    rule), a random row (seeded), or the last row of the source."""
    untimed: Untimed = "random"
    """Data without timestamps: hold out a random row (as the published preprocessing does) or the last row."""
    validation: bool = False
    """Also hold out the second latest item, for selection."""
    candidates: Annotated[int, Meta(ge=1)] = 99
    """Unobserved items each held-out item is ranked against."""


@dataclass(frozen=True, eq=False)
class Split:
    """Who trains on what, and what is held out."""

    interactions: Interactions
    settings: SplitSettings
    train: ItemSets
    observed: ItemSets
    """All items of a user: training, validation and test."""
    test: npt.NDArray[np.int64]
    candidates: npt.NDArray[np.int32]
    """[m, 99]: never an observed item of that user."""
    validation: npt.NDArray[np.int64] | None
    """NO_ITEM for a user with a single distinct item."""
    validation_candidates: npt.NDArray[np.int32] | None

    @property
    def n_users(self) -> int:
        """Number of clients."""
        return self.interactions.n_users

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return self.interactions.n_items

    @property
    def tie_rule(self) -> str:
        """The rule that chose the test item, in words for results."""
        if self.interactions.times is None:
            return {"random": "a random row (no timestamps)", "file-order": "the last row (no timestamps)"}[
                self.settings.untimed
            ]
        rule = {"random": "a random row", "lowest-item": "the lowest item number", "last-row": "the last row"}
        return f"the latest; among equals {rule[self.settings.ties]}"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides a metric: ids, training rows, held-out items, candidates."""
        digest = sha256(
            json.dumps([asdict(self.settings), self.interactions.user_ids, self.interactions.item_ids]).encode()
        )
        arrays = [self.train.ptr, self.train.items, self.train.counts, self.test, self.candidates]
        for array in (*arrays, self.validation, self.validation_candidates):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).reshape(-1).data)
        return digest.hexdigest()


def leave_one_out(interactions: Interactions, settings: SplitSettings | None = None, **changes: object) -> Split:
    """Hold out each user's latest interaction.

    Args:
        interactions: at least two per user.
        settings: how.
        **changes: fields of `SplitSettings`, instead of `settings`.

    Raises:
        ConfigError: a rule is unknown.
        DataError: a user has too few interactions, or the catalogue too few items to rank against.
    """
    if settings is not None and changes:
        raise TypeError("give settings or changes, not both")
    settings = settings or SplitSettings(**changes)  # type: ignore[arg-type]  # a wrong name raises TypeError
    n_users, n_items = interactions.n_users, interactions.n_items
    held_out = 2 if settings.validation else 1
    for name, valid in (("ties", get_args(Ties)), ("untimed", get_args(Untimed))):
        if getattr(settings, name) not in valid:
            raise ConfigError(unknown(f"split.{name}", getattr(settings, name), valid))
    if settings.candidates < 1:
        raise DataError(
            f"A held-out item should be ranked against at least one candidate. Found {settings.candidates}."
        )
    if interactions.min_interactions <= held_out:
        raise DataError(
            f"A user needs at least {held_out + 1} interactions: {held_out} held out and one to train on. "
            f"Found data.min_interactions = {interactions.min_interactions}. Raise it."
        )
    observed = ItemSets.from_pairs(interactions.users, interactions.items, n_users, n_items)
    _check_room(interactions, observed, settings.candidates)

    latest = latest_first(interactions, settings)
    start = np.searchsorted(interactions.users[latest], np.arange(n_users))
    test_rows = latest[start]
    test = interactions.items[test_rows].astype(np.int64)
    in_training = np.ones(len(interactions), dtype=bool)
    in_training[test_rows] = False
    validation = validation_candidates = None
    if settings.validation:
        validation = np.full(n_users, NO_ITEM, dtype=np.int64)
        other = latest[interactions.items[latest] != test[interactions.users[latest]]]
        users, first = np.unique(interactions.users[other], return_index=True)
        validation[users] = interactions.items[other[first]]
        in_training[other[first]] = False
        if not len(users):
            raise DataError("A validation item needs a user with two different items. Found none; leave it out.")
        validation_candidates = _candidates("validation", observed, settings)
    training = latest[in_training[latest]]
    ordered = interactions.times is not None or settings.untimed == "file-order"
    merge = ItemSets.from_latest_first if ordered else ItemSets.from_pairs
    train = merge(interactions.users[training], interactions.items[training], n_users, n_items)
    return Split(
        interactions,
        settings,
        train,
        observed,
        test,
        _candidates("test", observed, settings),
        validation,
        validation_candidates,
    )


def latest_first(interactions: Interactions, settings: SplitSettings) -> npt.NDArray[np.int64]:
    """Rows by user, each user's latest first."""
    rows = np.arange(len(interactions), dtype=np.int64)
    ties: str = settings.ties
    times = interactions.times
    if times is None:
        times, ties = np.zeros_like(rows), {"random": "random", "file-order": "last-row"}[settings.untimed]
    if ties == "random":
        by_user = np.argsort(interactions.users, kind="stable")
        occurrence = np.empty_like(rows)
        sizes = np.bincount(interactions.users, minlength=interactions.n_users)
        occurrence[by_user] = rows - np.repeat(np.cumsum(sizes) - sizes, sizes)
        users = interactions.users.astype(np.int64)
        precedence: npt.NDArray[np.generic] = Draws(settings.seed).uniform("split/ties", 0, users, occurrence)
    elif ties == "lowest-item":
        precedence = interactions.items
    else:
        precedence = -rows
    return np.lexsort((rows, precedence, ~times, interactions.users))  # ~: the opposite order of every number


def _candidates(purpose: str, observed: ItemSets, settings: SplitSettings) -> npt.NDArray[np.int32]:
    observed = replace(observed)  # a copy, so that what sampling caches is freed afterwards
    draws, numbers = Draws(settings.seed), np.arange(settings.candidates)[None, :]
    candidates = np.empty((observed.n_users, settings.candidates), dtype=np.int32)
    for first in range(0, observed.n_users, BLOCK):  # the numbers drawn are many times larger than what is kept
        users = np.arange(first, min(first + BLOCK, observed.n_users), dtype=np.int64)
        uniform = draws.uniform(f"split/{purpose}", 0, users[:, None], numbers)
        candidates[users] = observed.outside(users, uniform)
    return candidates


def _check_room(interactions: Interactions, observed: ItemSets, needed: int) -> None:
    sizes = np.diff(observed.ptr)
    fullest = int(np.argmax(sizes))
    free = observed.n_items - int(sizes[fullest])
    if free < needed:
        raise DataError(
            f"Ranking against {needed} candidates needs {needed} items a user has not touched. "
            f"'{interactions.name}' has {observed.n_items:,} items and user {interactions.user_ids[fullest]!r} "
            f"touched all but {free:,}. "
            f"Lower split.candidates or use a larger catalogue."
        )
