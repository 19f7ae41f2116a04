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
    """Every user-item pair is an example: an own item is wanted to be 1 and weighs 1 + α w_i, others 0 and 1."""

    reg: float
    """Penalty λ; it grows with the weight of a user's or an item's pairs."""
    alpha: float
    """Confidence α of the own item of a user who has one item."""

    def fold_in(
        self, own: OwnRows, weights: Float[Tensor, "C H"], item: Float[Tensor, "n d"], gram: Float[Tensor, "d d"]
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C H d"]]:
        """p_u = (YᵀY + Σ_H c_i y_i y_iᵀ + λ (n + Σ_H c_i))⁻¹ Σ_H (1 + c_i) y_i, c_i = α w_i, and Y_H (Eq. 4).

        `gram` is YᵀY.
        """
        y = item[own.items] * own.x[:, :, None]
        left, right = self.system(weights, y, gram, len(item))
        return torch.cholesky_solve(right.sum(1)[:, :, None], left).squeeze(2), y

    def system(
        self, weights: Float[Tensor, "C H"], y: Float[Tensor, "C H d"], gram: Float[Tensor, "d d"], n_items: int
    ) -> tuple[Float[Tensor, "C d d"], Float[Tensor, "C H d"]]:
        """The Cholesky factor of each device's matrix in Eq. 4, and what each own item adds to the right side."""
        c = self.alpha * weights.to(y.dtype)
        left = torch.baddbmm(gram.expand(len(y), -1, -1), y.mT, y * c[:, :, None])
        left.diagonal(dim1=1, dim2=2).add_(self.reg * (n_items + c.sum(1))[:, None])
        return torch.linalg.cholesky(left), (1 + c)[:, :, None] * y

    def targets(
        self, own: OwnRows, weights: Float[Tensor, "C H"], user: Float[Tensor, "C d"], y: Float[Tensor, "C H d"]
    ) -> Float[Tensor, "C H d"]:
        """p_u (1 + α w_i - α w_i p_u · y_i) for the own items: what they would take from this user (Eq. 5)."""
        c = self.alpha * weights.to(y.dtype)
        pulls = own.x * (1 + c - c * (y @ user[:, :, None]).squeeze(2))
        return pulls[:, :, None] * user[:, None]

    def step_items(
        self,
        y: Float[Tensor, "n d"],
        weights: Float[Tensor, "n 1"],
        sums: tuple[Float[Tensor, "n d"], Float[Tensor, "d d"], Float[Tensor, "d d"]],
        n_clients: float,
        step: float,
    ) -> Float[Tensor, "n d"]:
        """y_i + step (G + α f_i W + λ_i)⁻¹ (T_i - G y_i - λ_i y_i), in double precision (Eq. 6).

        Args:
            y: item vectors.
            weights: f_i, the sum of w_i over each item's users; λ_i = λ (M + α f_i).
            sums: over clients, T of `targets`, G of p pᵀ and of p pᵀ times a user's Σ_H w_i, which divided by the sum
                of all w_i is W.
            n_clients: how many clients there are, M.
            step: share of the step that is taken.
        """
        targets, gram, weighted = (value.double() for value in sums)
        y, confidence = y.double(), self.alpha * weights.double()
        typical = weighted / weights.double().sum().clamp(min=1)
        penalty = self.reg * (n_clients + confidence)
        residual = targets - y @ gram - penalty * y
        after = torch.empty_like(y)
        for first, last in blocks_of(len(y)):
            left = gram + confidence[first:last, :, None] * typical
            left.diagonal(dim1=1, dim2=2).add_(penalty[first:last])
            solved = torch.cholesky_solve(residual[first:last, :, None], torch.linalg.cholesky(left)).squeeze(2)
            after[first:last] = y[first:last] + step * solved
        return after
