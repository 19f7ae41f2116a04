"""Which differences between two methods are real: a paired test over users and seeds.

The test. Let D[s, u] be the difference of a metric between two methods for user u and training seed s. Users and seeds
are both a sample (of people, of random numbers), so the mean of D varies for two reasons, and a test over users alone
would call the luck of a seed an effect. D is therefore taken as a two-way crossed random-effects table without
replication. With the mean squares MS_u (users), MS_s (seeds) and MS_e (rest) of its analysis of variance,

    Var(mean) = (MS_u + max(MS_s - MS_e, 0)) / (S U),

and mean / sqrt(Var) is compared with Student's t, degrees of freedom by Satterthwaite. With one seed this is the paired
t-test over users; it is never more lenient than that one.

The family. Tests that are read together are corrected together: marks by Holm's method, intervals by Bonferroni's, so
that all of them hold at once with 95%. Holm's method may tell a side that Bonferroni's interval leaves open; the
interval then ends at 0, and never contradicts its mark. `benchmarks/null_simulation.py` measures what this promises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit  # what scipy.stats.t calls, in half its time to import

Array = npt.NDArray[np.float64]

LEVEL = 0.05
"""Differences with a smaller adjusted p count as real; intervals cover 1 - LEVEL."""
MARGIN = 0.02
"""Two points: only an interval that lies within so much of 0 on either side says that there is no clear difference."""
ENOUGH_SEEDS = 5
"""Below that the test errs too often where seeds differ much."""
TEST = "paired two-way random-effects t-test over users and seeds (Satterthwaite degrees of freedom), level 0.05"
Verdict = Literal["above", "below", "alike", "open", "untested"]


@dataclass(frozen=True)
class Comparison:
    """One paired comparison: the first method minus the second, in the metric's own unit."""

    difference: float
    low: float
    """95% interval of the difference; of all differences of its family together once it is corrected."""
    high: float
    p: float
    """Two-sided, of this test alone."""
    effect: float
    """Cohen's d_z: mean over users divided by the standard deviation over users, each averaged over seeds."""
    users: int
    seeds: int
    p_adjusted: float | None = None
    """After Holm's correction over its family."""
    error: float = 0.0
    """Standard error of the difference."""
    freedom: float | None = None
    """Degrees of freedom of that; None for infinitely many."""
    fixed: bool = False
    """Neither method draws anything: users are the only sample, and one run is enough."""

    @property
    def verdict(self) -> Verdict:
        """Which side it is on, if a test could say; `alike` if it is small for sure, `open` if it may be large."""
        if not self.fixed and self.seeds < ENOUGH_SEEDS:
            return "untested"
        p = self.p if self.p_adjusted is None else self.p_adjusted
        if p < LEVEL and self.difference:
            return "above" if self.difference > 0 else "below"
        return "alike" if self.low >= -MARGIN and self.high <= MARGIN else "open"

    @property
    def sign(self) -> int:
        """1 above, -1 below, 0 not to be told apart."""
        return {"above": 1, "below": -1}.get(self.verdict, 0)


def paired_differences(first: Array, second: Array) -> Array:
    """[S, U] differences; a method without seeds of its own (one row) stands against every seed of the other."""
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"both need the same users, found {first.shape[1]} and {second.shape[1]}")
    if min(len(first), len(second)) != 1 and len(first) != len(second):
        raise ValueError(f"both need the same seeds, found {len(first)} and {len(second)}")
    difference: Array = first - second
    return difference


def compare(first: Array, second: Array) -> Comparison:
    """Test the mean of first - second, both [S, U]."""
    table = paired_differences(first, second)
    n_seeds, n_users = table.shape
    mean, variance, freedom = grand_mean(table)
    per_user = table.mean(0)
    spread = float(per_user.std(ddof=1)) if n_users > 1 else 0.0
    error = math.sqrt(variance)
    p = two_sided_p(mean / error, freedom) if error else float(mean == 0)
    effect = 0.0 if spread == 0 else mean / spread
    found = Comparison(
        mean,
        mean,
        mean,
        p,
        effect,
        n_users,
        n_seeds,
        error=error,
        freedom=freedom if math.isfinite(freedom) else None,
    )
    return _with_interval(found, LEVEL)


def correct(family: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons with p-values and intervals that hold for all of them together."""
    adjusted = holm([found.p for found in family])
    return [
        _on_its_side(replace(_with_interval(found, LEVEL / len(family)), p_adjusted=p))
        for found, p in zip(family, adjusted, strict=True)
    ]


def _with_interval(found: Comparison, level: float) -> Comparison:
    """With the interval that covers 1 - level."""
    freedom = math.inf if found.freedom is None else found.freedom
    reach = t_quantile(1 - level / 2, freedom) * found.error if found.error else 0.0
    return replace(found, low=found.difference - reach, high=found.difference + reach)


def _on_its_side(found: Comparison) -> Comparison:
    """Cut at 0 where Holm's method tells the side of a difference, which it does a little sooner than Bonferroni's."""
    if found.p_adjusted is None or found.p_adjusted >= LEVEL:
        return found
    if found.difference > 0:
        return replace(found, low=max(found.low, 0.0))
    return replace(found, high=min(found.high, 0.0))


def grand_mean(table: Array) -> tuple[float, float, float]:
    """Mean of [S, U], its variance over new users and new seeds, and the degrees of freedom of that variance."""
    n_seeds, n_users = table.shape
    mean = float(table.mean())
    if n_users < 2:
        return mean, 0.0, math.inf
    by_user, by_seed = table.mean(0), table.mean(1)
    of_users = n_seeds * float(((by_user - mean) ** 2).sum()) / (n_users - 1)
    extra, extra_square = 0.0, 0.0
    if n_seeds > 1:
        of_seeds = n_users * float(((by_seed - mean) ** 2).sum()) / (n_seeds - 1)
        rest = table - by_user[None, :] - by_seed[:, None] + mean
        of_rest = float((rest**2).sum()) / ((n_seeds - 1) * (n_users - 1))
        if of_seeds > of_rest:
            extra = of_seeds - of_rest
            extra_square = of_seeds**2 / (n_seeds - 1) + of_rest**2 / ((n_seeds - 1) * (n_users - 1))
    total = of_users + extra
    if total == 0:
        return mean, 0.0, math.inf
    freedom = total**2 / (of_users**2 / (n_users - 1) + extra_square)
    return mean, total / (n_seeds * n_users), freedom


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| > |t|) of Student's t."""
    return float(2 * stdtr(freedom, -abs(t)))


def t_quantile(probability: float, freedom: float) -> float:
    """The t with P(T ≤ t) = probability."""
    return float(stdtrit(freedom, probability))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: reject those below the level and the chance of any false rejection is below it."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
