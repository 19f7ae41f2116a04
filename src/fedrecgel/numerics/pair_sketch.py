"""Co-occurrences of items in a hashed table: so many cells for any number of items."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.numerics.own_rows import OwnRows

MULTIPLIERS = (-7046029254386353131, -4658895280553007687)
"""Odd numbers of 64 bits, of SplitMix64's mixing function."""


@dataclass(frozen=True, eq=False)
class PairSketch:
    """A signed count sketch with one row per item. A pair is kept in the row of its rarer item.

    Rare items have few partners, so pairs seldom share a cell; where they do, random signs let them cancel on average.
    """

    counts: Float[Tensor, "n 1"]
    """Users of each item, which decide the rarer one; of equals it is the one with the smaller number."""
    width: int
    """Cells per item."""

    def rows(self, own: OwnRows, weights: Float[Tensor, "C H"]) -> Float[Tensor, "C H w"]:
        """Each client's pairs in the rows of its own items, a pair of items i and j as heavy as w_i x_j."""
        one, other = own.items[:, :, None], own.items[:, None]
        column, sign = self._cells(one, other)
        kept = self._rarer(one, other) * own.x[:, None] * weights[:, :, None]
        table = weights.new_zeros(*own.items.shape, self.width)
        return table.scatter_add_(2, column, kept * sign)

    def read(
        self, table: Float[Tensor, "n w"], item: Int[Tensor, " C"], others: Int[Tensor, " n"]
    ) -> Float[Tensor, "C n"]:
        """How often each client's item occurs with the others, as far as the table tells; 0 with itself."""
        one, other = item[:, None], others[None]
        rarer = self._rarer(one, other)
        column, sign = self._cells(torch.where(rarer, one, other), torch.where(rarer, other, one))
        found = table.flatten()[torch.where(rarer, one, other) * self.width + column]
        return torch.where(one == other, 0, found * sign)

    def _rarer(self, one: Int[Tensor, " *a"], other: Int[Tensor, " *b"]) -> Bool[Tensor, " *s"]:
        """Whether the first is the rarer; never of an item and itself."""
        counts = self.counts[:, 0]
        less, equal = counts[one] < counts[other], counts[one] == counts[other]
        return less | (equal & (one < other))

    def _cells(
        self, row: Int[Tensor, " *a"], item: Int[Tensor, " *b"]
    ) -> tuple[Int[Tensor, " *s"], Float[Tensor, " *s"]]:
        """The column of each pair within its row, and its sign."""
        mixed = row * len(self.counts) + item + 1
        for multiplier in MULTIPLIERS:
            mixed = mixed * multiplier
            mixed = mixed ^ ((mixed >> 31) & 0x1FFFFFFFF)  # the shift of a number without a sign
        return ((mixed >> 1) & 0x3FFFFFFFFFFFFFFF) % self.width, (1 - 2 * (mixed & 1)).to(self.counts.dtype)


def pair_rows(own: OwnRows, counts: Float[Tensor, "n 1"], cells: int | None) -> Float[Tensor, "C H w"]:
    """m_u^-2a x_uᵀ x_u on the own items; each pair has a column of its own, or is hashed into so many (Eq. 11)."""
    weights = own.weigh()
    if cells is not None:
        return PairSketch(counts, cells).rows(own, weights.square())
    everything = weights.new_zeros(len(weights), len(counts)).scatter_add_(1, own.items, weights)
    return weights[:, :, None] * everything[:, None]
