"""Methods made up of chance: what the paired test says of them is known beforehand.

A user is hit or not, as in HR@10. Whether the held-out item is among the first ten depends on the user (some are easy),
on the candidates of a split (each seed has its own), on how well a method suits the user, on the luck of its training
seed, and on chance. Under the null all methods have the same distribution. `benchmarks/null_simulation.py` repeats it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from fedrecgel.studies.statistics import Array, Comparison, compare, correct

HIT = 0.6
"""Share of users that are hit, of every method under the null."""
OF_USER, OF_SPLIT, OF_FIT, OF_CHANCE = 1.0, 0.7, 0.5, 0.5
"""Standard deviations of what makes a hit; `fit` and `chance` are the method's own."""
TOTAL = math.sqrt(OF_USER**2 + OF_SPLIT**2 + OF_FIT**2 + OF_CHANCE**2)
NORMAL = NormalDist()


@dataclass(frozen=True)
class World:
    """What is simulated."""

    users: int
    seeds: int
    luck: float
    """In points."""
    gains: tuple[float, ...] = (0.0,)
    """Of each method over the last one, in points."""

    def hits(self, generator: np.random.Generator) -> list[Array]:
        """[S, U] of every method, and of the one they are compared with."""

        def normal(*size: int) -> Array:
            return generator.standard_normal(size, dtype=np.float32).astype(np.float64)

        common = OF_USER * normal(1, self.users) + OF_SPLIT * normal(self.seeds, self.users)
        found = []
        for gain in (*self.gains, 0.0):
            lucky = gain + self.luck * normal(self.seeds, 1) if self.luck else gain
            own = OF_FIT * normal(1, self.users) + OF_CHANCE * normal(self.seeds, self.users)
            found.append((common + own < TOTAL * quantiles(lucky)).astype(np.float64))
        return found

    def family(self, generator: np.random.Generator) -> list[Comparison]:
        """Every method against the last one, corrected together."""
        *methods, last = self.hits(generator)
        return correct([compare(own, last) for own in methods])


def quantiles(points: float | Array) -> Array:
    """Below which a share of HIT and so many points lies, of a standard normal number."""
    shares = np.clip(HIT + np.asarray(points, dtype=np.float64) / 100, 1e-9, 1 - 1e-9)
    found: Array = np.vectorize(NORMAL.inv_cdf)(shares)
    return found
