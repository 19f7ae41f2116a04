"""A small network that every client has of its own, on the client axis."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.models.gradients import differentiate
from fedrecgel.models.linear import linear_start
from fedrecgel.tensors import Tensors


@dataclass(frozen=True)
class PrivateNetwork:
    """concat(u, e_j) through hidden layers of these widths to a logit."""

    dim: int
    hidden: tuple[int, ...]

    @property
    def names(self) -> list[str]:
        """Its tensors: the user vector u, and weights and bias of each layer."""
        return ["user", *(f"{kind}{layer}" for layer in range(len(self.hidden) + 1) for kind in "wb")]

    def start(self, user: np.random.Generator, layers: np.random.Generator) -> dict[str, npt.NDArray[np.float64]]:
        """N(0, 1) for u, the layers as `torch.nn.Linear` starts them."""
        found = [user.standard_normal(self.dim)]
        for fan_in, width in pairwise((2 * self.dim, *self.hidden, 1)):
            found += [linear_start(fan_in, (fan_in, width), layers), linear_start(fan_in, (width,), layers)]
        return dict(zip(self.names, found, strict=True))

    def logits(self, own: Tensors, rows: Float[Tensor, "C K d"]) -> Float[Tensor, "C K"]:
        """The clients' scores of items with these vectors."""
        value = torch.cat([own["user"][:, None].expand(-1, rows.shape[1], -1), rows], dim=2)
        for layer in range(len(self.hidden)):
            value = torch.relu(torch.baddbmm(own[f"b{layer}"][:, None], value, own[f"w{layer}"]))
        last = len(self.hidden)
        return torch.baddbmm(own[f"b{last}"][:, None], value, own[f"w{last}"]).squeeze(2)

    def gradient(
        self, own: Tensors, labels: Float[Tensor, "C K"], weights: Float[Tensor, "C K"], *, saturating: bool
    ) -> tuple[Float[Tensor, " C"], Tensors]:
        """Loss of each client and its gradient by network and `rows`."""

        def logits(leaves: Tensors) -> Float[Tensor, "C K"]:
            return self.logits(leaves, leaves["rows"])

        return differentiate(logits, own, labels, weights, saturating=saturating)
