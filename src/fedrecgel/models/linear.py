"""Scores of the methods whose user is a linear score layer, s_j = w · e_j + b, and the step they share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.numerics.losses import bce


def linear_start(fan_in: int, shape: tuple[int, ...], generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Uniform in ±1/√fan_in: how `torch.nn.Linear` starts its weights and biases."""
    bound = fan_in**-0.5
    return generator.uniform(-bound, bound, shape)


def linear_scores(
    rows: Float[Tensor, "C K d"], w: Float[Tensor, "C d"], b: Float[Tensor, " C"]
) -> Float[Tensor, "C K"]:
    """s_j = w · e_j + b."""
    return torch.baddbmm(b[:, None, None], rows, w[:, :, None]).squeeze(2)


class Alternated(NamedTuple):
    """One batch: the loss before, the layer after its step, and the gradient of the item rows under that layer."""

    loss: Float[Tensor, " C"]
    w: Float[Tensor, "C d"]
    b: Float[Tensor, " C"]
    rows: Float[Tensor, "C K d"]


def alternate(
    rows: Float[Tensor, "C K d"],
    w: Float[Tensor, "C d"],
    b: Float[Tensor, " C"],
    labels: Float[Tensor, "C K"],
    weights: Float[Tensor, "C K"],
    lr: float,
    saturating: bool,
) -> Alternated:
    """Step the score layer, then look at the items with the new one."""
    loss, slope = bce(linear_scores(rows, w, b), labels, weights, saturating=saturating)
    w = w - lr * torch.bmm(slope[:, None], rows).squeeze(1)
    b = b - lr * slope.sum(1)
    _, slope = bce(linear_scores(rows, w, b), labels, weights, saturating=saturating)
    return Alternated(loss, w, b, slope[:, :, None] * w[:, None, :])
