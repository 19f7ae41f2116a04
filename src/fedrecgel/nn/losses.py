"""Binary cross-entropy per client: its value and its slope at every logit."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

SATURATED = 1e-12
"""Where p (1 - p) is below this, cross-entropy of sigmoid outputs in single precision has no gradient left."""


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
    loss = (weights * (softplus(logits) - labels * logits)).sum(1)
    slope = weights * (torch.sigmoid(logits) - labels)
    if saturating:
        p = torch.sigmoid(logits.float())
        slope = slope.masked_fill(p * (1 - p) < SATURATED, 0)
    return loss, slope
