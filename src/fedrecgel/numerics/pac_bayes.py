"""The PAC-Bayes quantities of Lemma 1 and Lemma 2 (Eq. 7-9 and the appendix).

With T parameters, N records, a loss bounded by L and Gaussian noise σ, with probability 1 - γ::

    L_D(θ)  ≤  E_ε L_S(θ + ε) + f(‖θ‖²)                                       Lemma 1
    L_D(θ)  ≤  max_{‖ε_co‖ ≤ ρ_co} max_{‖ε_ur‖ ≤ ρ_ur} L_S(θ + ε) + f(‖θ‖²) + 2/√N - 1/N      Lemma 2

Lemma 2 holds for every σ below `admissible_sigma`. With more parameters than records the bound is vacuous: far above L.
It is here for inspection, and for its gradient g_norm, which Algorithm 1 adds to every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Bound:
    """Right-hand side of Lemma 2 and its two parts."""

    worst_case_loss: float
    regulariser: float
    loss_bound: float

    @property
    def value(self) -> float:
        """The bound on the loss over the true distribution."""
        return self.worst_case_loss + self.regulariser

    @property
    def vacuous(self) -> bool:
        """Whether the bound says less than the loss's own bound."""
        return self.value >= self.loss_bound


def regulariser(
    squared_norm: float, *, n_parameters: int, n_records: int, sigma: float, gamma: float, loss_bound: float
) -> float:
    """f^k(‖θ^k‖²) of Lemma 1 (Eq. 8)."""
    spread = 0.5 * n_parameters * math.log1p(squared_norm / (n_parameters * sigma**2))
    confidence = math.log(1 / gamma) + 6 * math.log(n_records + n_parameters)
    return (0.5 + spread + confidence + loss_bound**2 / 8) / math.sqrt(n_records)


def regulariser_slope(squared_norm: float, *, n_parameters: int, n_records: int, sigma: float) -> float:
    """The number c with ∇f = c θ: weight decay with an adaptive coefficient, T / (√N (T σ² + ‖θ‖²))."""
    return n_parameters / (math.sqrt(n_records) * (n_parameters * sigma**2 + squared_norm))


def gaussian_reach(n_parameters: int, n_records: int) -> float:
    """R such that ‖ε‖ ≤ σ r with probability 1 - 1/√N for ε ~ N(0, σ² I) (Eq. Lem2:1 and Lem2:2)."""
    t = math.log(n_records) / 2
    return math.sqrt(2 * t + n_parameters + 2 * math.sqrt(n_parameters * t))


def admissible_sigma(rho_co: float, rho_ur: float, *, n_shared: int, n_private: int, n_records: int) -> float:
    """The largest σ of Lemma 2 for these radii.

    A radius of zero has no admissible noise of its own; it is left out, and two zeros give zero.
    """
    limits = [
        rho / gaussian_reach(size, n_records) for rho, size in ((rho_co, n_shared), (rho_ur, n_private)) if rho > 0
    ]
    return min(limits, default=0.0)


def regulariser_slopes(
    shared: Sequence[Tensor], user: Float[Tensor, "C d"], n_records: Int[Tensor, " C"], rho_co: float, rho_ur: float
) -> Float[Tensor, " C"]:
    """`regulariser_slope` of every client at θ^k = (θ_co, θ_ur^k), with the largest σ its radii admit."""
    sizes = {"n_shared": sum(value.numel() for value in shared), "n_private": user.shape[1]}
    squared = torch.stack([value.square().sum() for value in shared]).sum() + user.square().sum(1)
    slopes = []
    for norm, count in zip(squared.tolist(), n_records.tolist(), strict=True):
        sigma = admissible_sigma(rho_co, rho_ur, n_records=count, **sizes)
        slopes.append(regulariser_slope(norm, n_parameters=sum(sizes.values()), n_records=count, sigma=sigma))
    return torch.tensor(slopes, dtype=user.dtype, device=user.device)


def lemma2(
    worst_case_loss: float,
    squared_norm: float,
    *,
    n_parameters: int,
    n_records: int,
    sigma: float,
    gamma: float,
    loss_bound: float,
) -> Bound:
    """The bound of Lemma 2, with the redefined f^k of its proof."""
    f = regulariser(
        squared_norm,
        n_parameters=n_parameters,
        n_records=n_records,
        sigma=sigma,
        gamma=gamma,
        loss_bound=loss_bound,
    )
    return Bound(worst_case_loss, f + 2 / math.sqrt(n_records) - 1 / n_records, loss_bound)
