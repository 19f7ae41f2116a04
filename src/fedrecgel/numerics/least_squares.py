"""Both sides of a weighted factorisation of histories: users in closed form, items by a step that needs sums alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.numerics.counts import blocks_of
from fedrecgel.numerics.own_rows import OwnRows


@dataclass(frozen=True)
class LeastSquares:
    """Every user-item pair is an example: wanted 1 and weight 1 + α for own items, wanted 0 and weight 1 for others."""

    reg: float
    """Penalty λ; it grows with the weight of a user's or an item's pairs."""
    alpha: float
    """Confidence α of an own item."""

    def fold_in(
        self, own: OwnRows, item: Float[Tensor, "n d"], gram: Float[Tensor, "d d"]
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C H d"]]:
        """p_u = (YᵀY + α Y_HᵀY_H + λ (n + α m_u))⁻¹ (1 + α) Σ_H y_i, and Y_H; `gram` is YᵀY (Eq. 4)."""
        y = item[own.items] * own.x[:, :, None]
        left = torch.baddbmm(gram.expand(len(y), -1, -1), y.mT, y, alpha=self.alpha)
        left.diagonal(dim1=1, dim2=2).add_(self.reg * (len(item) + self.alpha * own.m)[:, None])
        right = (1 + self.alpha) * y.sum(1)
        return torch.cholesky_solve(right[:, :, None], torch.linalg.cholesky(left)).squeeze(2), y

    def targets(self, own: OwnRows, user: Float[Tensor, "C d"], y: Float[Tensor, "C H d"]) -> Float[Tensor, "C H d"]:
        """p_u (1 + α - α p_u · y_i) for the own items: what they would take from this user (Eq. 5)."""
        weights = own.x * (1 + self.alpha - self.alpha * (y @ user[:, :, None]).squeeze(2))
        return weights[:, :, None] * user[:, None]

    def step_items(
        self,
        y: Float[Tensor, "n d"],
        counts: Float[Tensor, "n 1"],
        sums: tuple[Float[Tensor, "n d"], Float[Tensor, "d d"], Float[Tensor, "d d"]],
        n_clients: float,
        step: float,
    ) -> Float[Tensor, "n d"]:
        """y_i + step (G + α n_i W + λ_i)⁻¹ (T_i - G y_i - λ_i y_i), in double precision (Eq. 6).

        Args:
            y: item vectors.
            counts: users n_i of each item.
            sums: over clients, T of `targets`, G of p pᵀ and of m p pᵀ, which divided by Σ m is W.
            n_clients: how many clients there are.
            step: share of the step that is taken.
        """
        targets, gram, weighted = (value.double() for value in sums)
        y, counts = y.double(), counts.double()
        typical = weighted / counts.sum().clamp(min=1)
        penalty = self.reg * (n_clients + self.alpha * counts)
        residual = targets - y @ gram - penalty * y
        after = torch.empty_like(y)
        for first, last in blocks_of(len(y)):
            left = gram + self.alpha * counts[first:last, :, None] * typical
            left.diagonal(dim1=1, dim2=2).add_(penalty[first:last])
            solved = torch.cholesky_solve(residual[first:last, :, None], torch.linalg.cholesky(left)).squeeze(2)
            after[first:last] = y[first:last] + step * solved
        return after
