"""Rests: a node that was silent is left out for a while, longer each time, so that it costs its time-out seldom."""

from __future__ import annotations

from typing import Generic, TypeVar

LONGEST = 32
"""Letters a node misses at most before it is asked again."""

K = TypeVar("K", int, str)


class Rests(Generic[K]):
    """Who rests. Counted in letters, not in seconds: the same answers give the same run."""

    def __init__(self) -> None:
        self._silences: dict[K, int] = {}
        self._left: dict[K, int] = {}

    def resting(self, key: K) -> bool:
        """Whether it is left out now."""
        return self._left.get(key, 0) > 0

    def silent(self, key: K) -> None:
        """It gave no answer: it misses 1, 2, 4, ... letters."""
        self._silences[key] = self._silences.get(key, 0) + 1
        self._left[key] = min(LONGEST, 1 << min(self._silences[key] - 1, 16))

    def missed(self, key: K) -> None:
        """A letter went out without it."""
        self._left[key] -= 1

    def answered(self, key: K) -> None:
        """It is trusted to answer again."""
        self._silences.pop(key, None)
        self._left.pop(key, None)
