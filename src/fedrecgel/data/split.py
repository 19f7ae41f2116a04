"""Split: training rows, held-out items and fixed candidates to rank them against; leave-one-out makes one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from fedrecgel.data.interactions import Interactions
from fedrecgel.data.item_sets import IntArray, ItemSets
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, DataError, unknown

Kind = Literal["leave-one-out", "last-n", "temporal", "ratio", "given"]
Ties = Literal["lowest-item", "random", "last-row"]
Untimed = Literal["random", "file-order"]
NO_ITEM = -1
BLOCK = 20_000
"""Users whose candidates are drawn at once."""
LAST_N, RATIO, TEMPORAL, OF_GIVEN = 5, 0.2, 0.1, 0.1
"""What is held out where `split.n` or `split.share` does not say: items, shares of items, of rows, for validation."""


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
    kind: Kind = "leave-one-out"
    """What is held out: each user's latest row, its n latest items, rows after a point in time, a random share of its
    items, or the items of a file of its own."""
    n: Annotated[int, Meta(ge=1)] | None = None
    """Items per user that last-n holds out; 5 unless given."""
    share: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """Held out of each user's items (ratio, 0.2 unless given), of all rows (temporal, 0.1), or, of the kind given, of
    each user's training items for validation (0.1)."""
    test: str | None = None
    """File with the test items of the kind given; data.name is the one to train on."""

    def stated(self) -> dict[str, object]:
        """The settings that tell splits apart; those of leave-one-out are as before there were other kinds."""
        every = asdict(replace(self, test=None))  # what that file holds counts, not its name
        return {name: value for name, value in every.items() if value is not None and value != "leave-one-out"}


class HeldOut(NamedTuple):
    """Held-out items of all users, one user after another, and what they are ranked against."""

    ptr: IntArray
    """User u has items[ptr[u]:ptr[u + 1]]."""
    items: IntArray
    candidates: npt.NDArray[np.int32]

    @property
    def sizes(self) -> IntArray:
        """How many each user has."""
        return np.diff(self.ptr)

    @property
    def owners(self) -> IntArray:
        """The user of each item."""
        return np.repeat(np.arange(len(self.ptr) - 1), self.sizes)

    def pad(self, users: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """The items of these users as a rectangle, and which of its entries are real; others repeat the first."""
        sizes = self.sizes[users]
        place = np.arange(sizes.max(initial=1))
        real = place < sizes[:, None]
        return self.items[self.ptr[users][:, None] + np.where(real, place, 0)], real


@dataclass(frozen=True, eq=False)
class Split:
    """Who trains on what, and what is held out."""

    interactions: Interactions
    settings: SplitSettings
    train: ItemSets
    observed: ItemSets
    """All items of a user: training, validation and test."""
    test: npt.NDArray[np.int64]
    """Of each user; several one after another where `test_ptr` says whose they are."""
    candidates: npt.NDArray[np.int32]
    """[m, 99]: never an observed item of that user."""
    validation: npt.NDArray[np.int64] | None
    """NO_ITEM for a user with a single distinct item."""
    validation_candidates: npt.NDArray[np.int32] | None
    test_ptr: IntArray | None = field(default=None, kw_only=True)
    """User u is tested on test[test_ptr[u]:test_ptr[u + 1]]; None: on test[u]."""
    validation_ptr: IntArray | None = field(default=None, kw_only=True)
    notes: list[str] = field(default_factory=list, kw_only=True)
    """What was left out, a sentence each."""

    @property
    def n_users(self) -> int:
        """Number of clients."""
        return self.interactions.n_users

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return self.interactions.n_items

    @property
    def several(self) -> bool:
        """Whether users have any number of held-out items, not one each."""
        return self.test_ptr is not None

    def held_out(self, which: str) -> HeldOut:
        """The "test" or "validation" items."""
        if which == "test":
            items, ptr, candidates = self.test, self.test_ptr, self.candidates
        elif self.validation is None or self.validation_candidates is None:
            raise ValueError("this split has no validation items")
        else:
            items, ptr, candidates = self.validation, self.validation_ptr, self.validation_candidates
        if ptr is None:
            ptr = np.concatenate([[0], np.cumsum(items != NO_ITEM)])
            items = items[items != NO_ITEM]
        return HeldOut(ptr, items, candidates)

    @property
    def tie_rule(self) -> str:
        """The rule that chose what is held out, in words for results."""
        settings = self.settings
        if settings.kind == "ratio":
            return f"a random {settings.share or RATIO:.0%} of each user's items"
        if settings.kind == "temporal":
            return f"items of the latest {settings.share or TEMPORAL:.0%} of all rows"
        if settings.kind == "given":
            return f"the items in {Path(settings.test or '').name}"
        rule = self._rule_of_one()
        return rule if settings.kind == "leave-one-out" else f"{settings.n or LAST_N} items per user: {rule}"

    def _rule_of_one(self) -> str:
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
            json.dumps([self.settings.stated(), self.interactions.user_ids, self.interactions.item_ids]).encode()
        )
        arrays = [self.train.ptr, self.train.items, self.train.counts, self.test, self.candidates]
        arrays += [pointer for pointer in (self.test_ptr, self.validation_ptr) if pointer is not None]
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
    check_rules(settings)
    if interactions.min_interactions <= held_out:
        raise DataError(
            f"A user needs at least {held_out + 1} interactions: {held_out} held out and one to train on. "
            f"Found data.min_interactions = {interactions.min_interactions}. Raise it."
        )
    observed = ItemSets.from_pairs(interactions.users, interactions.items, n_users, n_items)
    check_room(interactions, observed, settings.candidates)

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
        validation_candidates = draw_candidates("validation", observed, settings)
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
        draw_candidates("test", observed, settings),
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


def draw_candidates(purpose: str, observed: ItemSets, settings: SplitSettings) -> npt.NDArray[np.int32]:
    """For every user as many items it has not touched as it is ranked against, without repeats."""
    observed = replace(observed)  # a copy, so that what sampling caches is freed afterwards
    draws, numbers = Draws(settings.seed), np.arange(settings.candidates)[None, :]
    candidates = np.empty((observed.n_users, settings.candidates), dtype=np.int32)
    for first in range(0, observed.n_users, BLOCK):  # the numbers drawn are many times larger than what is kept
        users = np.arange(first, min(first + BLOCK, observed.n_users), dtype=np.int64)
        uniform = draws.uniform(f"split/{purpose}", 0, users[:, None], numbers)
        candidates[users] = observed.outside(users, uniform)
    return candidates


def check_rules(settings: SplitSettings) -> None:
    """Refuse rules that do not exist, where a split is made from Python."""
    for name, valid in (("ties", get_args(Ties)), ("untimed", get_args(Untimed))):
        if getattr(settings, name) not in valid:
            raise ConfigError(unknown(f"split.{name}", getattr(settings, name), valid))
    if settings.candidates < 1:
        raise DataError(
            f"A held-out item should be ranked against at least one candidate. Found {settings.candidates}."
        )


def check_room(interactions: Interactions, observed: ItemSets, needed: int) -> None:
    """Refuse a catalogue of which somebody has touched too much to rank against the rest."""
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
