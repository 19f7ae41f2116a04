"""Mixtures of scores, and how well each ranks one item of every client over the whole catalogue."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.numerics.own_rows import OwnRows

LAST_RANK = 10
"""K of NDCG@K."""


class Mixture(NamedTuple):
    """Weights of three standardised scores, and the two settings of the first."""

    filter: float
    """w_L, of the spectral filter."""
    factors: float
    """w_A, of the factorisation."""
    popularity: float
    """w_P, of popularity."""
    strength: float
    """r: how strongly small eigenvalues are damped; a large one damps all in proportion."""
    decay: float
    """How fast earlier own items lose weight in the filter."""


STRENGTHS, DECAYS = (0.3, 0.1, 1e3), (0.0, 0.2, 0.5)
SHARES, POPULARITIES = (0.5, 0.0, 0.1, 0.25, 0.75, 0.9), (0.0, 0.15)
GRID = tuple(
    Mixture(1 - share, share, popularity, strength, decay)
    for strength, decay, share, popularity in product(STRENGTHS, DECAYS, SHARES, POPULARITIES)
)
"""What a vote chooses from; the first is the mixture before a vote."""


def ndcg_of_mixtures(
    scores: Float[Tensor, "C q n"], weights: Float[Tensor, "g q"], target: Int[Tensor, " C"], own: OwnRows
) -> Float[Tensor, "C g"]:
    """NDCG@10 of each client's target among the items it does not own, for each weighted sum of its q scores.

    Items that tie with the target count half.
    """
    mixed = weights @ scores
    reached = mixed.gather(2, target[:, None, None].expand(-1, len(weights), 1))
    known, counts = mixed.gather(2, own.items[:, None].expand(-1, len(weights), -1)), own.x[:, None]
    above = (mixed > reached).sum(2) - ((known > reached) * counts).sum(2)
    tied = (mixed == reached).sum(2) - 1 - ((known == reached) * counts).sum(2)
    rank = above + tied / 2
    return torch.where(rank < LAST_RANK, (rank + 2).log2().reciprocal(), 0)
