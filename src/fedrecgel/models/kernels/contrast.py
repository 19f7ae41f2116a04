"""contrast.cpp, the native kernel of CoFedRec's contrastive term."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.models.kernels.compiler import library
from fedrecgel.numerics.contrast import EPSILON, contrast, label_weights

SMALLEST_TEMPERATURE = 0.025
"""Below it e^(-2/τ) is too small for single precision, which the kernel needs."""


def native_contrast(
    tables: Float[Tensor, "C n d"],
    labels: Int[Tensor, " n"],
    anchors: Int[Tensor, " a"] | None,
    *,
    temperature: float,
    base_temperature: float,
) -> tuple[Float[Tensor, " C"], Float[Tensor, "C n d"]]:
    """As `contrast`, in single precision."""
    clients, n, dim = tables.shape
    compiled = library("contrast.cpp", D=dim)
    if compiled is None or temperature < SMALLEST_TEMPERATURE:
        return contrast(tables, labels, anchors, temperature=temperature, base_temperature=base_temperature)
    rows = torch.arange(n) if anchors is None else anchors
    sizes, share = label_weights(labels, tables.dtype, len(rows), temperature / base_temperature)
    loss, gradient = tables.new_empty(clients), torch.empty_like(tables, memory_format=torch.contiguous_format)
    counts = (clients, n, len(rows), int(labels.max()) + 1)
    compiled.call("contrast", counts, (tables, labels, rows, sizes, share), (temperature, EPSILON), (loss, gradient))
    return loss, gradient
