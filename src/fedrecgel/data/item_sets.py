"""A set of items per user in compressed rows, and exact sampling outside of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ItemSets:
    """For each user the sorted distinct items, and how many rows each pair had."""

    n_items: int
    ptr: IntArray
    """User u's items are items[ptr[u]:ptr[u + 1]]."""
    items: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    recency: npt.NDArray[np.int32] | None = None
    """0 for the user's latest item, 1 for the one before, …; None where the order is not known."""

    @cached_property
    def _gaps(self) -> IntArray:
        """User * n_items + item - position: sorted, so one search maps a rank outside the set to its item."""
        sizes = np.diff(self.ptr)
        owner = np.repeat(np.arange(self.n_users), sizes)
        position = np.arange(len(self.items)) - np.repeat(self.ptr[:-1], sizes)
        gaps: IntArray = owner * self.n_items + self.items - position
        return gaps

    @classmethod
    def from_pairs(
        cls, users: npt.NDArray[np.int32], items: npt.NDArray[np.int32], n_users: int, n_items: int
    ) -> ItemSets:
        """Sort and merge rows."""
        keys, counts = np.unique(users.astype(np.int64) * n_items + items, return_counts=True)
        return cls._from_keys(keys, counts, n_users, n_items)

    @classmethod
    def from_latest_first(
        cls, users: npt.NDArray[np.int32], items: npt.NDArray[np.int32], n_users: int, n_items: int
    ) -> ItemSets:
        """The same for rows by user, each user's latest first, of which the order is kept."""
        rows = users.astype(np.int64) * n_items + items
        keys, first, counts = np.unique(rows, return_index=True, return_counts=True)
        found = cls._from_keys(keys, counts, n_users, n_items)
        recency = np.empty(len(keys), dtype=np.int32)
        by_time = np.argsort(first)  # by user still: a user's rows follow each other in both orders
        recency[by_time] = np.arange(len(keys)) - np.repeat(found.ptr[:-1], np.diff(found.ptr))
        return replace(found, recency=recency)

    @classmethod
    def _from_keys(cls, keys: IntArray, counts: IntArray, n_users: int, n_items: int) -> ItemSets:
        ptr = np.searchsorted(keys, np.arange(n_users + 1, dtype=np.int64) * n_items)
        return cls(n_items, ptr.astype(np.int64), (keys % n_items).astype(np.int32), counts.astype(np.int32))

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.ptr) - 1

    def sizes(self, users: IntArray) -> IntArray:
        """How many distinct items each of these users has."""
        return self.ptr[users + 1] - self.ptr[users]

    def n_rows(self, users: IntArray) -> IntArray:
        """How many rows each of these users has, repeats included."""
        before = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
        rows: IntArray = before[self.ptr[users + 1]] - before[self.ptr[users]]
        return rows

    def flat(self, users: IntArray) -> tuple[IntArray, IntArray]:
        """Every item of these users: the position in `users` it belongs to, and its index into `items`."""
        sizes = self.sizes(users)
        owner = np.repeat(np.arange(len(users)), sizes)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return owner, self.ptr[users][owner] + within

    def of(self, users: IntArray) -> ItemSets:
        """The rows of these users, numbered from 0."""
        ptr = np.concatenate([[0], np.cumsum(self.sizes(users), dtype=np.int64)])
        _, at = self.flat(users)
        recency = None if self.recency is None else self.recency[at]
        return ItemSets(self.n_items, ptr, self.items[at], self.counts[at], recency)

    def latest(self, most: int) -> ItemSets:
        """At most so many items of each user, the latest; all of them where the order is not known."""
        if self.recency is None or np.diff(self.ptr).max(initial=0) <= most:
            return self
        kept = self.recency < most
        ptr = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[self.ptr]
        return ItemSets(self.n_items, ptr, self.items[kept], self.counts[kept], self.recency[kept])

    def contains(self, users: IntArray, items: IntArray) -> npt.NDArray[np.bool_]:
        """Whether each item is in the set of its user; both arrays have one shape."""
        owner = np.repeat(np.arange(self.n_users), np.diff(self.ptr))
        keys = owner * self.n_items + self.items
        wanted = users.astype(np.int64) * self.n_items + items
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.asarray(keys[at] == wanted)

    def outside(self, users: IntArray, uniform: npt.NDArray[np.float64]) -> IntArray:
        """Distinct items outside each user's set, uniformly, without rejection.

        Args:
            users: [N].
            uniform: [N, k] numbers in [0, 1); row i yields k distinct items for users[i].

        Floyd's algorithm picks k distinct ranks among the user's unobserved items; the rank r belongs to item
        r + (number of own items before it).
        """
        k = uniform.shape[1]
        if k == 0:
            return np.empty(uniform.shape, dtype=np.int64)
        free = self.n_items - self.sizes(users)
        ranks = np.empty(uniform.shape, dtype=np.int64)
        for i in range(k):
            top = free - k + i
            pick = (uniform[:, i] * (top + 1)).astype(np.int64)
            taken = (ranks[:, :i] == pick[:, None]).any(1)
            ranks[:, i] = np.where(taken, top, pick)
        before = np.searchsorted(self._gaps, (users * self.n_items)[:, None] + ranks, side="right")
        return ranks + before - self.ptr[users][:, None]
