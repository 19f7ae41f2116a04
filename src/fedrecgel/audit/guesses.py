"""How good a guess at histories is: F1, beside a guess from popularity alone, which anybody can make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
import numpy.typing as npt

from fedrecgel.data.item_sets import ItemSets

NORMAL_95 = 1.96


@dataclass(frozen=True)
class Finding:
    """What an attack found out about some clients."""

    f1: float
    popularity_f1: float
    """Of the guess that anybody can make, for the same clients."""
    low: float
    """Of the advantage, 95%, over clients."""
    high: float
    n_clients: int

    @property
    def advantage(self) -> float:
        """How much better than that."""
        return self.f1 - self.popularity_f1


def f1(found: set[int], true: set[int]) -> float:
    """Harmonic mean of precision and recall."""
    return 2 * len(found & true) / max(1, len(found) + len(true))


def judge(guesses: Sequence[set[int]], baseline: Sequence[set[int]], truth: Sequence[set[int]]) -> Finding:
    """Compare guesses, client by client."""
    own = np.array([f1(guess, true) for guess, true in zip(guesses, truth, strict=True)])
    other = np.array([f1(guess, true) for guess, true in zip(baseline, truth, strict=True)])
    gain = own - other
    margin = NORMAL_95 * float(gain.std(ddof=1)) / sqrt(len(gain)) if len(gain) > 1 else 1.0
    mean = float(gain.mean())
    return Finding(float(own.mean()), float(other.mean()), mean - margin, mean + margin, len(gain))


@dataclass(frozen=True)
class Histories:
    """What attacks are after, and what is known without them."""

    train: ItemSets

    def of(self, client: int) -> set[int]:
        """The training items of a client."""
        return set(self.train.items[self.train.ptr[client] : self.train.ptr[client + 1]].tolist())

    @cached_property
    def popularity(self) -> npt.NDArray[np.float64]:
        """Users of each item, as a public ranking would tell."""
        return np.bincount(self.train.items, minlength=self.train.n_items).astype(np.float64)

    def order(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Items from the highest score to the lowest, popular ones first among equals."""
        return np.lexsort((-self.popularity, -scores))

    def first(self, order: npt.NDArray[np.int64], client: int) -> set[int]:
        """The first items of an order; as many as the client has, which attackers may know."""
        return set(order[: len(self.of(client))].tolist())

    def most(self, scores: npt.NDArray[np.float64], client: int) -> set[int]:
        """The items with the highest scores."""
        return self.first(self.order(scores), client)

    @cached_property
    def usual_order(self) -> npt.NDArray[np.int64]:
        """Popular items first."""
        return self.order(self.popularity)

    def by_popularity(self, client: int) -> set[int]:
        """The guess that needs no upload."""
        return self.first(self.usual_order, client)
