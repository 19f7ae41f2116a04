"""Mixtures of scores, and how well each ranks one item of every client over the whole catalogue."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.numerics.own_rows import OwnRows

LAST_RANK = 10
"""K of NDCG@K."""
SAME = 1e-4
"""Scores no farther apart tie; they are in deviations over the catalogue."""


class Mixture(NamedTuple):
    """Weights of standardised scores, and two settings of those that weigh own items."""

    filter: float
    """w_L, of the spectral filter."""
    factors: float
    """w_A, of the factorisation."""
    popularity: float
    """w_P, of popularity."""
    pairs: float
    """w_G, of co-occurrences."""
    strength: float
    """r: how strongly small eigenvalues are damped; a large one damps all in proportion."""
    decay: float
    """How fast earlier own items lose weight in the filter and in co-occurrences."""


STRENGTHS, DECAYS = (0.3, 0.1, 1e3), (0.0, 0.25, 0.5, 1.0)
SHARES, POPULARITIES, PAIRS = (0.5, 0.35, 0.65, 0.8), (0.0, 0.15, 0.3), (0.0, 0.15, 0.5)
"""Smaller shares of the factorisation are no better over the catalogue, and worse among candidates."""


def grid_of(pairs: tuple[float, ...]) -> tuple[Mixture, ...]:
    """All combinations, with these weights of co-occurrences; the first is the mixture before a vote."""
    return tuple(
        Mixture(1 - share, share, popularity, pair, strength, decay)
        for strength, decay, share, popularity, pair in product(STRENGTHS, DECAYS, SHARES, POPULARITIES, pairs)
    )


GRID, GRID_WITH_PAIRS = grid_of((0.0,)), grid_of(PAIRS)
"""What a vote chooses from."""


def ndcg_of_mixtures(
    scores: Float[Tensor, "C q n"], weights: Float[Tensor, "g q"], target: Int[Tensor, " C"], own: OwnRows
) -> Float[Tensor, "C g"]:
    """NDCG@10 of each client's target among the items it does not own, for each weighted sum of its q scores.

    Items that tie with the target count half. Those that the same users have would differ by rounding alone, so scores
    that are almost equal tie.
    """
    mixed = weights @ scores
    reached = mixed.gather(2, target[:, None, None].expand(-1, len(weights), 1))
    known, counts = mixed.gather(2, own.items[:, None].expand(-1, len(weights), -1)), own.x[:, None]
    high, low = reached + SAME, reached - SAME
    above = _count(mixed > high) - ((known > high) * counts).sum(2)
    at_least = _count(mixed >= low) - ((known >= low) * counts).sum(2)
    rank = (above + at_least - 1) / 2  # the target is among the latter
    return torch.where(rank < LAST_RANK, (rank + 2).log2().reciprocal(), 0)


def _count(where: Bool[Tensor, "C g n"]) -> Int[Tensor, "C g"]:
    """How many items each has; summing to 32 bits takes a fifth of the time of the default."""
    return where.sum(2, dtype=torch.int32)


def choose_best(votes: Float[Tensor, " g"]) -> int:
    """The first of those with the largest sum, but for rounding."""
    return int((votes >= votes.max() * (1 - 1e-6)).nonzero()[0])
