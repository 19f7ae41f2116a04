"""Scores of a device from its own rows, each standardised: a spectral filter, a factorisation, pairs; and counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedrecgel.numerics.least_squares import LeastSquares
from fedrecgel.numerics.mixtures import Mixture, gain, ranks_of_mixtures
from fedrecgel.numerics.own_rows import OwnRows
from fedrecgel.numerics.pair_sketch import PairSketch
from fedrecgel.numerics.spectrum import Spread
from fedrecgel.tensors import Tensors, is_whole, pick

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
    """`counts`, `recent`, `vectors` with their `values`, `items`, and `pairs` or `pair_sketch` where they are used."""
    factorisation: LeastSquares

    @cached_property
    def damping(self) -> Float[Tensor, " n"]:
        """n^-b."""
        return damping(self.shared["counts"])

    @cached_property
    def popularity(self) -> Float[Tensor, " n"]:
        """z(log(n + 1))."""
        return standardise((self.shared["counts"].mT + 1).log()).squeeze(0)

    @cached_property
    def freshness(self) -> Float[Tensor, " n"]:
        """z(log((f + ρ) / (n + 1))): how late an item comes in histories, beside the mean ρ over all rows (Eq. 13)."""
        counts, recent = self.shared["counts"].mT, self.shared["recent"].mT
        usual = torch.where(counts.any() & recent.any(), recent.sum() / counts.sum(), 1)
        return standardise(((recent + usual) / (counts + 1)).log()).squeeze(0)

    @cached_property
    def items(self) -> Float[Tensor, "n d"]:
        """Y in double precision."""
        return self.shared["items"].double()

    @cached_property
    def both(self) -> Float[Tensor, "n b"]:
        """Eigenvectors and item vectors side by side."""
        return torch.cat([self.shared["vectors"], self.shared["items"]], 1)

    @cached_property
    def gram(self) -> Float[Tensor, "d d"]:
        """YᵀY."""
        return self.items.mT @ self.items

    @cached_property
    def spreads(self) -> tuple[Spread, Spread]:
        """Those of eigenvectors and of item vectors."""
        return Spread.of(self.shared["vectors"]), Spread.of(self.items)

    def spectral_rows(self, own: OwnRows) -> Float[Tensor, "C H k"]:
        """a_uᵀ (a_u Q) on the own items (Eq. 1)."""
        a = own.weigh() * self.damping[own.items]
        projected = embedding_bag(own.items, self.shared["vectors"], per_sample_weights=a, mode="sum")
        return a[:, :, None] * projected[:, None]

    @property
    def has_pairs(self) -> bool:
        """Whether co-occurrences are known, exactly or hashed."""
        return "pairs" in self.shared or "pair_sketch" in self.shared

    def score(self, own: OwnRows, mixture: Mixture, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """w_L z(L) + w_A z(A) + w_P z(log(n + 1)) + w_F z(F) + w_G z(G) (Eq. 7)."""
        (filtered, below_filtered), (folded, below_folded) = self._filter(own, mixture), self._fold_in(own, mixture)
        of_all = mixture.popularity * self.popularity + mixture.freshness * self.freshness
        if is_whole(items, len(of_all)):  # one product
            query = torch.cat([mixture.filter * filtered, mixture.factors * folded], 1)
            scores = torch.addmm(of_all, query, self.both.mT)
            scores -= mixture.filter * below_filtered + mixture.factors * below_folded
        else:
            scores = of_all[items] + mixture.filter * (_dot(filtered, self.shared["vectors"], items) - below_filtered)
            scores += mixture.factors * (_dot(folded, self.shared["items"], items) - below_folded)
        if self.has_pairs:
            scores += mixture.pairs * pick(self._pair_scores(own, mixture), items)
        return scores

    def shares(self, own: OwnRows, mixture: Mixture, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M H"]:
        """What each own item adds to w_L z(L) + w_A z(A) of these items; over own items they sum to it, up to means."""
        weights, y = own.weigh(mixture.decay), self.items[own.items] * own.x[:, :, None]
        left, right = self.factorisation.system(weights, y, self.gram, len(self.items))
        folded = torch.cholesky_solve(right.mT, left).mT
        filtered = self._damped(own, mixture)[:, :, None] * self.shared["vectors"][own.items] * self._response(mixture)
        found = torch.zeros(*items.shape, own.items.shape[1], dtype=y.dtype, device=y.device)
        parts = (mixture.filter, filtered, "vectors"), (mixture.factors, folded, "items")
        for (weight, terms, table), spread in zip(parts, self.spreads, strict=True):
            _, scale = spread.measure(terms.sum(1))
            found += weight * scale[:, :, None] * (self.shared[table][items].to(y.dtype) @ terms.to(y.dtype).mT)
        return found.to(own.x.dtype)

    def votes(self, own: OwnRows, target: Int[Tensor, " C"], grid: tuple[Mixture, ...]) -> Float[Tensor, "C g"]:
        """What each mixture gains by the rank it gives the target, a few clients at a time (Eq. 10)."""
        size = max(1, SCORES_AT_ONCE // len(self.damping))
        some = [slice(first, first + size) for first in range(0, len(target), size)]
        without_order = {"decay": 0.0, "freshness": 0.0} if own.later is None else {}
        alike = [mixture._replace(**without_order) for mixture in grid]
        tried = sorted(set(alike), key=lambda mixture: (mixture.decay, mixture.strength))
        found = torch.cat([self._ranks(own.of_clients(few), target[few], tried) for few in some])
        gains = gain(found, len(self.damping) - 1 - own.m[:, None])
        place = {mixture: number for number, mixture in enumerate(tried)}
        return gains[:, [place[mixture] for mixture in alike]]

    def _ranks(self, own: OwnRows, target: Int[Tensor, " c"], tried: list[Mixture]) -> Float[Tensor, "c g"]:
        """Of the target, for mixtures sorted by what they compute anew: first by decay, then by strength."""
        found = []
        everyone = self.popularity.expand(len(target), -1), self.freshness.expand(len(target), -1)
        for _, same_decay in groupby(tried, lambda mixture: mixture.decay):
            faded = list(same_decay)
            query, below = self._fold_in(own, faded[0])
            scores = [query @ self.shared["items"].mT - below, *everyone]
            if self.has_pairs:
                scores.append(self._pair_scores(own, faded[0]))
            for _, same_strength in groupby(faded, lambda mixture: mixture.strength):
                mixtures = list(same_strength)
                query, below = self._filter(own, mixtures[0])
                parts = torch.stack([query @ self.shared["vectors"].mT - below, *scores])
                weights = parts.new_tensor([mixture.weights[: len(parts)] for mixture in mixtures])
                found.append(ranks_of_mixtures(parts, weights, target, own))
        return torch.cat(found, 1)

    def _filter(self, own: OwnRows, mixture: Mixture) -> tuple[Float[Tensor, "C k"], Float[Tensor, "C 1"]]:
        """What eigenvectors are multiplied by: φ x_u D^-b V h(σ), standardised (Eq. 8)."""
        query = embedding_bag(
            own.items, self.shared["vectors"], per_sample_weights=self._damped(own, mixture), mode="sum"
        )
        return self.spreads[0].standardise(query * self._response(mixture))

    def _damped(self, own: OwnRows, mixture: Mixture) -> Float[Tensor, "C H"]:
        """φ x_u D^-b."""
        return own.fade(mixture.decay) * self.damping[own.items]

    def _response(self, mixture: Mixture) -> Float[Tensor, " k"]:
        """h(σ) = σ / (σ + r σ_1)."""
        values, largest = self.shared["values"], self.shared["values"][0]
        return values / torch.where(largest > 0, values + mixture.strength * largest, 1)

    def _fold_in(self, own: OwnRows, mixture: Mixture) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C 1"]]:
        """What item vectors are multiplied by: p_u, standardised (Eq. 9)."""
        user, _ = self.factorisation.fold_in(own, own.weigh(mixture.decay), self.items, self.gram)
        return self.spreads[1].standardise(user.to(own.x.dtype))

    def _pair_scores(self, own: OwnRows, mixture: Mixture) -> Float[Tensor, "C n"]:
        """φ x_u D^-2b C D^-b, standardised (Eq. 12)."""
        weights = self._damped(own, mixture) * self.damping[own.items]
        if "pairs" in self.shared:
            together = embedding_bag(own.items, self.shared["pairs"], per_sample_weights=weights, mode="sum")
        else:
            together = self._hashed_pairs(own, weights)
        return standardise(together * self.damping)

    def _hashed_pairs(self, own: OwnRows, weights: Float[Tensor, "C H"]) -> Float[Tensor, "C n"]:
        """The own items' rows of the table of pairs, read from its sketch one own item after another."""
        table = self.shared["pair_sketch"]
        sketch, everything = PairSketch(self.shared["counts"], table.shape[1]), torch.arange(len(table))
        together = weights.new_zeros(len(weights), len(table))
        for place in range(weights.shape[1]):
            some = weights[:, place].nonzero()[:, 0]
            read = sketch.read(table, own.items[some, place], everything.to(table.device))
            together[some] += weights[some, place, None] * read
        return together


def _dot(query: Float[Tensor, "C k"], table: Float[Tensor, "n k"], items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
    """Query times the rows of these items; of few items only those rows are read."""
    if 4 * items.shape[1] < len(table):
        return (table[items] @ query[:, :, None]).squeeze(2)
    return (query @ table.mT).gather(1, items)


def standardise(scores: Float[Tensor, "C n"]) -> Float[Tensor, "C n"]:
    """Mean 0 and deviation 1 over the catalogue; 0 where all are the same."""
    deviation = scores.std(1, correction=0, keepdim=True)
    return (scores - scores.mean(1, keepdim=True)) / torch.where(deviation > 0, deviation, torch.inf)
