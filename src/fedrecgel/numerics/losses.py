"""Losses per client: their value and their slope at every score."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

SATURATED = 1e-12
"""Where p (1 - p) is below this, cross-entropy of sigmoid outputs in single precision has no gradient left."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log of the chance that σ(s) gives the label y, example by example; exact at large scores, unlike softplus."""
    return binary_cross_entropy_with_logits(logits, labels, reduction="none")


def cross_entropy_slope(logits: Tensor, labels: Tensor) -> Tensor:
    """∂/∂s of it: σ(s) - y."""
    return torch.sigmoid(logits) - labels


def bce(
    logits: Float[Tensor, "C K"],
    labels: Float[Tensor, "C K"],
    weights: Float[Tensor, "C K"],
    *,
    saturating: bool = False,
) -> tuple[Float[Tensor, " C"], Float[Tensor, "C K"]]:
    """Weighted cross-entropy of each client, and ∂/∂logit = weight (σ(s) - y).

    Args:
        logits: s.
        labels: y.
        weights: how much each example counts; 0 for padding.
        saturating: take no gradient from examples so far off that sigmoid and cross-entropy, applied one after the
            other in single precision as published codes do, give none: logits above about 17 or below -28.
    """
    loss = (weights * cross_entropy(logits, labels)).sum(1)
    slope = weights * cross_entropy_slope(logits, labels)
    if saturating:
        p = torch.sigmoid(logits.float())
        slope = slope.masked_fill(p * (1 - p) < SATURATED, 0)
    return loss, slope


def bpr(
    scores: Float[Tensor, "C K"],
    better: Int[Tensor, "C T"],
    worse: Int[Tensor, "C T"],
    weights: Float[Tensor, "C T"],
) -> tuple[Float[Tensor, " C"], Float[Tensor, "C K"]]:
    """Bayesian personalised ranking, Σ weight · -log σ(s_better - s_worse), and its slope at every score.

    Args:
        scores: of a client's rows.
        better: which of the rows should score higher …
        worse: … than which.
        weights: how much each pair counts; 0 for padding.
    """
    margin = scores.gather(1, better) - scores.gather(1, worse)
    pull = -weights * torch.sigmoid(-margin)
    slope = torch.zeros_like(scores).scatter_add_(1, better, pull).scatter_add_(1, worse, -pull)
    return (weights * softplus(-margin)).sum(1), slope
