"""Scores of a device from its own rows: a spectral filter, a factorisation, popularity and pairs, each standardised."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedrecgel.numerics.least_squares import LeastSquares
from fedrecgel.numerics.mixtures import Mixture, ndcg_of_mixtures
from fedrecgel.numerics.own_rows import OwnRows
from fedrecgel.numerics.spectrum import Spread
from fedrecgel.tensors import Tensors

ITEM_POWER = 0.25
"""Exponent b of the normalisation by counts."""
SCORES_AT_ONCE = 1 << 19
"""Scores a vote computes together."""


def damping(counts: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
    """n^-b, of counts that are at least 1."""
    return counts.squeeze(1).clamp(min=1) ** -ITEM_POWER


@dataclass(frozen=True, eq=False)
class Scorer:
    """What a device makes of a download before it scores; the same for all devices."""

    shared: Tensors
    """`counts`, `vectors` with their `values`, `items`, and `pairs` where they are used."""
    factorisation: LeastSquares

    @cached_property
    def damping(self) -> Float[Tensor, " n"]:
        """n^-b."""
        return damping(self.shared["counts"])

    @cached_property
    def popularity(self) -> Float[Tensor, " n"]:
        """z(log(n + 1))."""
        return _standardise((self.shared["counts"].mT + 1).log()).squeeze(0)

    @cached_property
    def items(self) -> Float[Tensor, "n d"]:
        """Y in double precision."""
        return self.shared["items"].double()

    @cached_property
    def gram(self) -> Float[Tensor, "d d"]:
        """YᵀY."""
        return self.items.mT @ self.items

    @cached_property
    def spreads(self) -> tuple[Spread, Spread]:
        """Those of eigenvectors and of item vectors."""
        return Spread.of(self.shared["vectors"]), Spread.of(self.items)

    def score(self, own: OwnRows, mixture: Mixture, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """w_L z(L) + w_A z(A) + w_P z(log(n + 1)) + w_G z(G) (Eq. 7)."""
        (filtered, below_filtered), (folded, below_folded) = self._filter(own, mixture), self._fold_in(own)
        scores = mixture.popularity * self.popularity[items]
        scores += mixture.filter * (_dot(filtered, self.shared["vectors"], items) - below_filtered)
        scores += mixture.factors * (_dot(folded, self.shared["items"], items) - below_folded)
        if "pairs" in self.shared:
            scores += mixture.pairs * self._pair_scores(own, mixture.decay).gather(1, items)
        return scores

    def votes(self, own: OwnRows, target: Int[Tensor, " C"], grid: tuple[Mixture, ...]) -> Float[Tensor, "C g"]:
        """NDCG@10 of the target over the whole catalogue for each mixture, a few clients at a time (Eq. 10)."""
        size = max(1, SCORES_AT_ONCE // len(self.damping))
        some = [slice(first, first + size) for first in range(0, len(target), size)]
        return torch.cat([self._votes(own.of_clients(few), target[few], grid) for few in some])

    def _votes(self, own: OwnRows, target: Int[Tensor, " c"], grid: tuple[Mixture, ...]) -> Float[Tensor, "c g"]:
        query, below = self._fold_in(own)
        folded = query @ self.shared["items"].mT - below
        popular = self.popularity.expand_as(folded)
        alike = defaultdict[tuple[float, float], list[int]](list)  # mixtures that differ in weights alone
        for number, mixture in enumerate(grid):
            alike[mixture.strength, mixture.decay if own.later is not None else 0.0].append(number)
        found = []
        for numbers in alike.values():
            query, below = self._filter(own, grid[numbers[0]])
            scores = [query @ self.shared["vectors"].mT - below, folded, popular]
            if "pairs" in self.shared:
                scores.append(self._pair_scores(own, grid[numbers[0]].decay))
            weights = folded.new_tensor([grid[number][: len(scores)] for number in numbers])
            found.append(ndcg_of_mixtures(torch.stack(scores, 1), weights, target, own))
        order = torch.tensor([number for numbers in alike.values() for number in numbers])
        return torch.cat(found, 1)[:, order.argsort()]

    def _filter(self, own: OwnRows, mixture: Mixture) -> tuple[Float[Tensor, "C k"], Float[Tensor, "C 1"]]:
        """What eigenvectors are multiplied by: w_H x_u D^-b V h(σ), h(σ) = σ / (σ + r σ_1), standardised (Eq. 8)."""
        weights = own.x * own.recency_weights(mixture.decay) * self.damping[own.items]
        values, largest = self.shared["values"], self.shared["values"][0]
        response = values / torch.where(largest > 0, values + mixture.strength * largest, 1)
        query = embedding_bag(own.items, self.shared["vectors"], per_sample_weights=weights, mode="sum")
        return self.spreads[0].standardise(query * response)

    def _fold_in(self, own: OwnRows) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C 1"]]:
        """What item vectors are multiplied by: p_u, standardised (Eq. 9)."""
        user, _ = self.factorisation.fold_in(own, self.items, self.gram)
        return self.spreads[1].standardise(user.to(own.x.dtype))

    def _pair_scores(self, own: OwnRows, decay: float) -> Float[Tensor, "C n"]:
        """w_H x_u D^-2b C D^-b, standardised (Eq. 12)."""
        weights = own.x * own.recency_weights(decay) * self.damping[own.items].square()
        together = embedding_bag(own.items, self.shared["pairs"], per_sample_weights=weights, mode="sum")
        return _standardise(together * self.damping)


def _dot(query: Float[Tensor, "C k"], table: Float[Tensor, "n k"], items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
    """Query times the rows of these items; of few items only those rows are read."""
    if 4 * items.shape[1] < len(table):
        return (table[items] @ query[:, :, None]).squeeze(2)
    return (query @ table.mT).gather(1, items)


def _standardise(scores: Float[Tensor, "C n"]) -> Float[Tensor, "C n"]:
    """Mean 0 and deviation 1 over the catalogue; 0 where all are the same."""
    deviation = scores.std(1, correction=0, keepdim=True)
    return (scores - scores.mean(1, keepdim=True)) / torch.where(deviation > 0, deviation, torch.inf)
