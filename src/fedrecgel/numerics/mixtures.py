"""Mixtures of scores, and how well each ranks one item of every client."""

from __future__ import annotations

from itertools import product
from math import comb, log2
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.numerics.own_rows import OwnRows

LAST_RANK = 10
"""K of NDCG@K."""
CANDIDATES = 99
"""Items drawn at random that an item is ranked against, beside the whole catalogue."""
SAME = 1e-4
"""Scores no farther apart tie; they are in deviations over the catalogue."""
FAR = 1e4
"""How far below the target the items stand that a device knows, so that they never count."""
MIXED_AT_ONCE = 1 << 18
"""Scores that are mixed and counted together: few enough for a processor's own memory."""


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
    """How fast earlier own items lose weight."""
    freshness: float
    """w_F, of how late an item comes in histories."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Those of the filter, the factorisation, popularity, freshness and co-occurrences."""
        return self.filter, self.factors, self.popularity, self.freshness, self.pairs


STRENGTHS, DECAYS, SHARES = (1e3, 0.3, 0.1), (0.5, 0.0, 1.0), (0.5, 0.1, 0.3, 0.7)
POPULARITIES, FRESHNESSES, PAIRS = (0.3, 0.0, 0.6), (0.3, 0.0), (0.0, 0.15, 0.5)


def grid_of(pairs: tuple[float, ...]) -> tuple[Mixture, ...]:
    """All combinations, with these weights of co-occurrences; the first is the mixture before a vote."""
    return tuple(
        Mixture(1 - share, share, popularity, pair, strength, decay, freshness)
        for strength, decay, share, popularity, freshness, pair in product(
            STRENGTHS, DECAYS, SHARES, POPULARITIES, FRESHNESSES, pairs
        )
    )


GRID, GRID_WITH_PAIRS = grid_of((0.0,)), grid_of(PAIRS)
"""What a vote chooses from."""


def ranks_of_mixtures(
    scores: Float[Tensor, "q C n"], weights: Float[Tensor, "g q"], target: Int[Tensor, " C"], own: OwnRows
) -> Float[Tensor, "C g"]:
    """How many items that a client does not own score above its target, for each weighted sum of its q scores.

    Items that tie with the target count half. Those that the same users have would differ by rounding alone, so scores
    that are almost equal tie. Writes into `scores`.
    """
    n_items = scores.shape[2]
    scores -= scores.gather(2, target[None, :, None].expand(len(scores), -1, 1))
    client, place = own.x.nonzero(as_tuple=True)
    scores[:, client, own.items[client, place]] = -FAR
    few = max(1, MIXED_AT_ONCE // (len(weights) * n_items))
    ranks = scores.new_empty(len(target), len(weights))
    for first in range(0, len(target), few):
        some = scores[:, first : first + few]
        ahead = torch.hardshrink(weights @ some.reshape(len(scores), -1), SAME).sign_().view(len(weights), -1, n_items)
        ranks[first : first + few] = (n_items - 1 + ahead.sum(2).mT) / 2  # the target itself is not ahead
    return ranks


def gain(rank: Float[Tensor, "C g"], n_others: Float[Tensor, "C 1"]) -> Float[Tensor, "C g"]:
    """NDCG@10 among all other items, plus what is to be expected of NDCG@10 among 99 of them drawn at random.

    Of 99 draws a binomial number scores above the target, so nothing needs to be drawn.
    """
    share = (rank.double() / n_others.clamp(min=1)).clamp(max=1)
    expected = torch.zeros_like(share)
    for above in range(LAST_RANK):
        chance = comb(CANDIDATES, above) * share**above * (1 - share) ** (CANDIDATES - above)
        expected += chance / log2(above + 2)
    return torch.where(rank < LAST_RANK, (rank + 2).log2().reciprocal(), 0) + expected.to(rank.dtype)


def choose_best(votes: Float[Tensor, " g"]) -> int:
    """The first of those with the largest sum, but for rounding."""
    return int((votes >= votes.max() * (1 - 1e-6)).nonzero()[0])
