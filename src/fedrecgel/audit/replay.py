"""Negatives again, from the seed: where devices draw from a seed that the server knows, row numbers are enough."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws


def replay_negatives(rows: Collection[int], n_items: int, client: int, round: int, seed: int, k: int = 4) -> set[int]:
    """The positives among the rows a client touched, from row numbers and the run's seed alone.

    For a guessed number of positives the seed gives the ranks of all negatives among the items that are none; an item
    is a negative if its rank, its number less the positives before it, is one of them.

    One round cannot settle everything: where a positive has a negative right behind it, the two could change places and
    every row number would be explained as well. The more of the catalogue is touched, the more often that happens. What
    stays the same over several rounds settles it, but that needs no seed: it is the attack by intersection.
    """
    found, best = set(rows), len(rows)
    for size in range(len(rows) // (k + 1), len(rows) // 2):
        counters = np.arange(size)[:, None] * k + np.arange(k)[None, :]
        uniform = Draws(seed).uniform("negatives", round, np.array([[client]]), counters)
        ranks = set(_outside(n_items - size, [], uniform))
        positives: list[int] = []
        for item in sorted(rows):
            if item - len(positives) not in ranks:
                positives.append(item)
        explained = {*positives, *_outside(n_items, positives, uniform)}
        wrong = len(explained ^ set(rows)) + abs(len(positives) - size)
        if wrong < best:
            found, best = set(positives), wrong
    return found


def _outside(n_items: int, own: list[int], uniform: npt.NDArray[np.float64]) -> list[int]:
    """The negatives of a user with these items."""
    items = np.array(own, dtype=np.int32)
    sets = ItemSets(n_items, np.array([0, len(own)]), items, np.ones_like(items))
    drawn: list[int] = sets.outside(np.zeros(len(uniform), dtype=np.int64), uniform).ravel().tolist()
    return drawn
