"""MLP: a small tower over user and item vector (He et al., 2017, without the multiplicative half).

For a user vector u and an item's row v::

    h = relu(W1 (u, v) + b1), logit = out · relu(W2 h + b2) + out_bias
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.models.base import INIT_SD, Model
from fedrecgel.tensors import Tensors

HIDDEN = (64, 32)
"""Widths of the tower's layers."""
LAYERS = (("w1", "b1"), ("w2", "b2"), ("out", "out_bias"))
"""Names of their weights and biases."""


@dataclass(frozen=True, kw_only=True)
class MLP(Model):
    """Two hidden layers over both vectors side by side."""

    tables: ClassVar[tuple[str, ...]] = ("item",)
    network: ClassVar[tuple[str, ...]] = tuple(name for layer in LAYERS for name in layer)

    @property
    def user_dim(self) -> int:
        """As large as an item vector."""
        return self.mlp_dim

    def init_shared(self, n_items: int, generator: np.random.Generator) -> dict[str, npt.NDArray[np.float64]]:
        """Item vectors N(0, 0.01²), weights Xavier-uniform, biases zero."""
        shared = {"item": generator.normal(0, INIT_SD, (n_items, self.mlp_dim))}
        sizes = (2 * self.mlp_dim, *HIDDEN, 1)
        for (weight, bias), (rows, columns) in zip(LAYERS, pairwise(sizes), strict=True):
            bound = np.sqrt(6 / (rows + columns))
            shared |= {weight: generator.uniform(-bound, bound, (rows, columns)), bias: np.zeros((1, columns))}
        return shared

    def logits(self, own: Tensors) -> Float[Tensor, "C K"]:
        """The tower's output."""
        user = own["user"][:, None].expand(-1, own["item"].shape[1], -1)
        hidden = torch.baddbmm(own["b1"], torch.cat([user, own["item"]], dim=2), own["w1"]).relu()
        hidden = torch.baddbmm(own["b2"], hidden, own["w2"]).relu()
        return torch.baddbmm(own["out_bias"], hidden, own["out"]).squeeze(2)
