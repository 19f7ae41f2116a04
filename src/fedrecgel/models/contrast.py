"""Supervised contrastive loss over the rows of item tables (Khosla et al., 2020), and its gradient by hand."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from fedrecgel.models.kernels import contrast as kernel
from fedrecgel.models.kernels import kernels_allowed

EPSILON = 1e-6
"""Added to sums that may be zero, as in the released code of CoFedRec."""
BLOCK = 1 << 19
"""Logits computed at once: as many as stay in the cache."""


def contrast(
    tables: Float[Tensor, "C n d"],
    labels: Int[Tensor, " n"],
    anchors: Int[Tensor, " a"] | None,
    *,
    temperature: float,
    base_temperature: float,
) -> tuple[Float[Tensor, " C"], Float[Tensor, "C n d"]]:
    """Mean over anchors of -(τ/τ_b) mean_{j same} (a_ij - log Σ_{k≠i} e^{a_ik}), a_ij = z_i·z_j / τ; and its gradient.

    Args:
        tables: E; z are its rows at unit length.
        labels: rows with one label attract each other.
        anchors: rows i the mean runs over; None for all. A random subset is an unbiased estimate of the whole.
        temperature: τ.
        base_temperature: τ_b.

    The n × n logits are computed in blocks of anchors and never kept.
    """
    clients, n, dim = tables.shape
    rows = torch.arange(n, device=tables.device) if anchors is None else anchors
    sizes, share = label_weights(labels, tables.dtype, len(rows), temperature / base_temperature)
    if kernels_allowed(tables) and kernel.available(dim, temperature):
        return kernel.contrast(tables, labels, rows, sizes, share, temperature, EPSILON)
    z = normalize(tables, dim=2)
    same = _others_with_label(z, labels)
    loss, slope = z.new_zeros(clients), torch.zeros_like(z)  # slope = ∂/∂z
    width = max(1, BLOCK // (clients * n))
    for part in torch.split(rows, width):
        here, weight = z[:, part], share[part]
        logits = (here / temperature) @ z.mT
        logits[:, torch.arange(len(part), device=part.device), part] = -torch.inf
        top = logits.amax(2, keepdim=True)
        powers = logits.sub_(top).exp_()
        total = powers.sum(2) + EPSILON
        attract = (here * same[:, part]).sum(2) / temperature  # Σ_{j same} a_ij
        loss -= (weight * (attract - sizes[part] * (top[:, :, 0] + total.log()))).sum(1)
        pull = -weight / temperature
        push = (weight * sizes[part] / temperature / total)[:, :, None]  # ∂/∂a_ij of the log-sum is push · powers · τ
        slope[:, part] += pull[:, None] * same[:, part] + push * (powers @ z)
        slope += powers.mT @ (push * here)
    pulls = torch.zeros_like(share).index_copy_(0, rows, -share[rows] / temperature)
    slope += _others_with_label(z * pulls[:, None], labels)
    lengths = tables.norm(dim=2, keepdim=True).clamp(min=1e-12)
    return loss, (slope - z * (z * slope).sum(2, keepdim=True)) / lengths


def descend(
    tables: Float[Tensor, "C n d"],
    labels: Int[Tensor, " n"],
    anchors: Int[Tensor, " a"] | None,
    rates: Float[Tensor, " C"],
    *,
    temperature: float,
    base_temperature: float,
) -> Float[Tensor, " C"]:
    """Move each client's table down the gradient of `contrast`, in place, by its rate; the loss before."""
    n, dim = tables.shape[1:]
    if kernels_allowed(tables) and kernel.available(dim, temperature) and tables.is_contiguous():
        rows = torch.arange(n) if anchors is None else anchors
        sizes, share = label_weights(labels, tables.dtype, len(rows), temperature / base_temperature)
        return kernel.descend(tables, labels, rows, sizes, share, temperature, EPSILON, rates)
    loss, slope = contrast(tables, labels, anchors, temperature=temperature, base_temperature=base_temperature)
    tables.sub_(slope.mul_(rates[:, None, None]))
    return loss


def label_weights(
    labels: Int[Tensor, " n"], dtype: torch.dtype, n_anchors: int, factor: float
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """How many others share each item's label, and what each of these pairs weighs in the mean over anchors."""
    sizes = torch.bincount(labels)[labels].to(dtype) - 1
    return sizes, factor / n_anchors / (sizes + EPSILON)


def _others_with_label(values: Float[Tensor, "C n d"], labels: Int[Tensor, " n"]) -> Float[Tensor, "C n d"]:
    """For each row the sum of all other rows with its label."""
    sums = values.new_zeros(len(values), int(labels.max()) + 1, values.shape[2])
    return sums.index_add_(1, labels, values)[:, labels] - values
