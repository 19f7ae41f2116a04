"""iALS: weighted matrix factorisation of implicit counts. Centralised: the server sees every history.

Y. Hu, Y. Koren and C. Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008,
https://doi.org/10.1109/ICDM.2008.22; S. Rendle, W. Krichene, L. Zhang and Y. Koren, "Revisiting the Performance of iALS
on Item Recommendation Benchmarks", RecSys 2022, https://arxiv.org/abs/2110.14037

Idea: every user-item pair is an example of the loss (Eq. 3), with preference p = 1 where there are interactions and 0
elsewhere, and confidence c = 1 + α r for r interactions. With one side fixed the other is a ridge regression in closed
form (Eq. 4, 5), so the sides take turns. YᵀY, computed once, covers all pairs without interactions.

Deviations: each side's penalty may grow with its confidence (Rendle et al.): λ · (Σ c)^ν; ν = 0 is Hu et al. The device
computes its own user vector from the item vectors (Eq. 4), which is what one more step of the server would give it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.numerics.counts import CountMatrix
from fedrecgel.tensors import pick

INIT_SD = 0.1
"""Standard deviation of an item vector's length at the start, as Rendle et al. have it."""
CHUNK = 1 << 18
"""Numbers gathered together while one side is solved: 2 MB, small enough for the cache."""


@dataclass(frozen=True, kw_only=True)
class IALS(fed.Centralised):
    """Alternating least squares on all pairs, weighted by confidence."""

    paper: ClassVar[str] = "Hu, Koren and Volinsky, ICDM 2008"
    search: ClassVar[Mapping[str, object]] = {
        "dim": [32, 64, 128],
        "reg": {"low": 0.003, "high": 0.3, "log": True},
        "alpha": {"low": 3.0, "high": 300.0, "log": True},
        "iterations": [5, 10, 20],
        **fed.FADING,
    }
    contract: ClassVar[Mapping[str, object]] = {"dim": 8, "iterations": 2}

    dim: fed.Size = 64
    """Entries of a user or item vector, f."""
    reg: fed.Rate = 0.03
    """Penalty λ."""
    alpha: fed.Rate = 30.0
    """Confidence per interaction, α."""
    nu: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """How much the penalty grows with the confidence of a user or an item, ν; 0 for the same penalty everywhere."""
    iterations: fed.Size = 10
    """Turns of both sides in a round; a further round goes on from the item vectors of the last."""

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """Random item vectors."""
        start = draws.generator("init/server").normal(0, INIT_SD / self.dim**0.5, (problem.n_items, self.dim))
        return fed.Server({"item": problem.tensor(start)})

    def fit(self, seen: CountMatrix, shared: fed.Tensors) -> fed.Tensors:
        """Users from items, items from users, and again."""
        by_item, item = seen.transpose(), shared["item"].double()
        for _ in range(self.iterations):
            user = self.solve(item, item.mT @ item, seen)  # Eq. 4
            item = self.solve(user, user.mT @ user, by_item)  # Eq. 5
        return {"item": item.to(shared["item"].dtype)}

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The own vector from the own items, of which older ones may inspire less confidence, times these items'."""
        item, gram = down.derive(_gram)
        own = CountMatrix.from_history(history, down.shared["item"].dtype)
        user = self.solve(item, gram, replace(own, counts=own.counts * history.fade(self.decay, own.counts.dtype)))
        return pick(user @ item.mT, items)

    def solve(self, fixed: Float[Tensor, "n d"], gram: Float[Tensor, "d d"], met: CountMatrix) -> Float[Tensor, "m d"]:
        """One side, given the other: (YᵀY + Yᵀ(C − I)Y + λI)⁻¹ YᵀCp for every row of counts.

        Rows go by length, so that those solved together need little padding.
        """
        lengths, dim = met.ptr.diff(), fixed.shape[1]
        order = lengths.argsort(descending=True, stable=True)
        solved, start = fixed.new_zeros(met.n_rows, dim), 0
        while start < len(order) and (width := int(lengths[order[start]])):  # no interactions: the solution is zero
            rows = order[start : start + max(1, CHUNK // (dim * max(dim, width)))]
            place = torch.arange(width, device=rows.device)
            inside = place < lengths[rows, None]
            entry = (met.ptr[rows, None] + place).clamp(max=len(met.at) - 1)
            y, more = fixed[met.at[entry]], self.alpha * met.counts[entry].to(fixed.dtype) * inside  # c − 1
            left = torch.baddbmm(gram.expand(len(rows), dim, dim), (y * more[:, :, None]).mT, y)
            penalty = self.reg * (met.n_columns + more.sum(1)) ** self.nu
            left.diagonal(dim1=1, dim2=2).add_(penalty[:, None])
            right = y.mT @ (more + inside)[:, :, None]
            solved[rows] = torch.cholesky_solve(right, torch.linalg.cholesky(left))[:, :, 0]
            start += len(rows)
        return solved


def _gram(shared: fed.Tensors) -> tuple[Float[Tensor, "n d"], Float[Tensor, "d d"]]:
    """Y in double precision, and YᵀY, which every device needs."""
    item = shared["item"].double()
    return item, item.mT @ item
