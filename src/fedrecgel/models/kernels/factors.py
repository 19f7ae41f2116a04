"""factors.cpp, the compiled walk of matrix factorisation."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from fedrecgel.models.kernels.compiler import Recipe, library, padded_size


def recipe(dim: int) -> Recipe | None:
    """For vectors of this size."""
    return Recipe.of("factors.cpp", D=padded_size(dim))


def available(dim: int) -> bool:
    """Whether it can be built here for vectors of this size."""
    return library(recipe(dim)) is not None


def walk(
    user: Float[Tensor, "C d"],
    rows: Float[Tensor, "C K d"],
    slots: Int[Tensor, "C L"],
    labels: Float[Tensor, "C L"],
    counts: Bool[Tensor, "C L"],
    numbers: tuple[float, float, float],
    *,
    squared: bool,
    last: bool,
) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C K d"], Float[Tensor, " C"]]:
    """As `models.factors.Walk`, in single precision.

    Raises:
        RuntimeError: it is not available.
    """
    dim = user.shape[1]
    compiled, size = library(recipe(dim)), padded_size(dim)
    if compiled is None:
        raise RuntimeError("there is no compiled walk here")
    user, rows = (pad(value, (0, size - dim)) for value in (user, rows))  # zeros stay zeros all the way
    walked, gradient, loss = torch.empty_like(user), torch.empty_like(rows), user.new_empty(len(user))
    sizes = (*counts.shape, rows.shape[1], squared, last)
    compiled.call("walk", sizes, (user, rows, slots, labels, counts), numbers, (walked, gradient, loss))
    return walked[:, :dim], gradient[:, :, :dim], loss
