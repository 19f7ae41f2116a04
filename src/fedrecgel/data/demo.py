"""The embedded data set: 600 made-up users with tastes, 800 items with a long tail.

Items belong to one of eight tastes; a user has one or two, and takes most items from them, popular ones first.
Popularity explains part of it, tastes explain more, so a personalised method has something to learn.
Everything is integer arithmetic on the raw stream of PCG64, the one stream NumPy promises never to change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedrecgel.data.columns import Columns
from fedrecgel.data.sources.source import Statistics

ABOUT = "Made-up users with tastes and a long tail of items; generated, the same on every machine."
STATISTICS = Statistics(users=600, items=800, interactions=21_824)
N_USERS, N_ITEMS, N_TASTES = 600, 800, 8
FEWEST, MOST = 15, 80
"""Items per user."""
TASTE_PERCENT = 90
"""Share of interactions that follow the user's tastes; the rest follow popularity alone."""
HEAD = 10
"""The item at rank r of its taste is drawn in proportion to 1 / (r + HEAD)²: the larger, the flatter."""
SEED = 1
START, SPACING = 1_600_000_000, 86_400
"""Unix time of the first interaction, and the largest time between two of one user, in seconds."""
SHA256 = "4df749156cdf7bbea0f6d682bc10be32ba9775d9b8d71c9df3343a641cabc595"
"""Checksum of users, items and times as little-endian 64-bit integers; the tests compare."""

Integers = npt.NDArray[np.int64]


def generate() -> Columns:
    """The interactions of all users."""
    bits = np.random.PCG64(SEED)
    tastes = np.arange(N_ITEMS) % N_TASTES  # ranks alternate between tastes: each has its own head and tail
    item_of_rank = _shuffle(bits, N_ITEMS)
    ranks_of = [np.flatnonzero(tastes == taste) for taste in range(N_TASTES)]
    users, items, times = [], [], []
    for user in range(N_USERS):
        size = FEWEST + _below(bits, MOST - FEWEST + 1, 2).min()
        own = _below(bits, N_TASTES, 2)[: 1 + user % 2]
        ranks = _basket(bits, np.concatenate([ranks_of[taste] for taste in np.unique(own)]), int(size))
        users.append(np.full(size, user))
        items.append(item_of_rank[ranks])
        times.append(START + _below(bits, SPACING * 365, 1) + np.cumsum(1 + _below(bits, SPACING, int(size))))
    flat = [np.concatenate(column).astype(np.int64) for column in (users, items, times)]
    return Columns(users=pa.array(flat[0]), items=pa.array(flat[1]), times=flat[2], ratings=None)


def _basket(bits: np.random.PCG64, liked: Integers, size: int) -> Integers:
    """Distinct ranks in random order, most of them among those the user's tastes hold."""
    everything = np.arange(N_ITEMS)
    tries = 20 * size  # so many that the first `size` distinct ones are always there
    follows = _below(bits, 100, tries) < TASTE_PERCENT
    drawn = np.where(follows, _draw(bits, liked, tries), _draw(bits, everything, tries))
    distinct = drawn[np.sort(np.unique(drawn, return_index=True)[1])][:size]
    return np.asarray(distinct[_shuffle(bits, size)])


def _draw(bits: np.random.PCG64, ranks: Integers, size: int) -> Integers:
    """Ranks drawn with a long tail."""
    ceiling = np.cumsum(10**9 // (ranks // N_TASTES + HEAD) ** 2)
    return ranks[np.searchsorted(ceiling, _below(bits, int(ceiling[-1]), size), side="right")]


def _below(bits: np.random.PCG64, n: int, size: int) -> Integers:
    """Integers in [0, n)."""
    return (bits.random_raw(size) % np.uint64(n)).astype(np.int64)


def _shuffle(bits: np.random.PCG64, n: int) -> Integers:
    """A random permutation of n numbers."""
    return np.argsort(bits.random_raw(n), kind="stable")
