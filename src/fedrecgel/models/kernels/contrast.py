"""contrast.cpp, the compiled contrastive term."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.models.kernels.compiler import Recipe, library

SMALLEST_TEMPERATURE = 0.025
"""Below it e^(-2/τ) is too small for single precision, which the kernel needs."""


def recipe(dim: int, temperature: float) -> Recipe | None:
    """For vectors of this size; None where it is not exact enough at this temperature."""
    return Recipe.of("contrast.cpp", D=dim) if temperature >= SMALLEST_TEMPERATURE else None


def available(dim: int, temperature: float) -> bool:
    """Whether it can be built here."""
    return library(recipe(dim, temperature)) is not None


def contrast(
    tables: Float[Tensor, "C n d"],
    labels: Int[Tensor, " n"],
    anchors: Int[Tensor, " a"],
    sizes: Float[Tensor, " n"],
    share: Float[Tensor, " n"],
    temperature: float,
    epsilon: float,
) -> tuple[Float[Tensor, " C"], Float[Tensor, "C n d"]]:
    """As `models.contrast.contrast`, in single precision.

    Raises:
        RuntimeError: it is not available.
    """
    clients, n, dim = tables.shape
    compiled = library(recipe(dim, temperature))
    if compiled is None:
        raise RuntimeError("there is no compiled contrastive term here")
    loss, gradient = tables.new_empty(clients), torch.empty_like(tables, memory_format=torch.contiguous_format)
    counts = (clients, n, len(anchors), int(labels.max()) + 1)
    read = (tables, labels, anchors, sizes, share)
    compiled.call("contrast", counts, read, (temperature, epsilon), (loss, gradient))
    return loss, gradient


def descend(
    tables: Float[Tensor, "C n d"],
    labels: Int[Tensor, " n"],
    anchors: Int[Tensor, " a"],
    sizes: Float[Tensor, " n"],
    share: Float[Tensor, " n"],
    temperature: float,
    epsilon: float,
    rates: Float[Tensor, " C"],
) -> Float[Tensor, " C"]:
    """As `models.contrast.descend`: tables change in place.

    Raises:
        RuntimeError: it is not available.
    """
    clients, n, dim = tables.shape
    compiled = library(recipe(dim, temperature))
    if compiled is None:
        raise RuntimeError("there is no compiled contrastive term here")
    loss = tables.new_empty(clients)
    counts = (clients, n, len(anchors), int(labels.max()) + 1)
    compiled.call("descend", counts, (labels, anchors, sizes, share, rates), (temperature, epsilon), (loss, tables))
    return loss
