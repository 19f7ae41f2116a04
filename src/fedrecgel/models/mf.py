"""MF: matrix factorisation with biases (Koren, Bell and Volinsky, 2009).

For a user vector u = (p, b_u) and an item's row v with bias b_j::

    logit = p · v + b_u + b_j + µ
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from torch import Tensor

from fedrecgel.models.base import INIT_SD, Model
from fedrecgel.tensors import Tensors


@dataclass(frozen=True, kw_only=True)
class MF(Model):
    """A dot product and biases."""

    tables: ClassVar[tuple[str, ...]] = ("item", "item_bias")
    network: ClassVar[tuple[str, ...]] = ("bias",)

    @property
    def user_dim(self) -> int:
        """The vector p, and the user's bias."""
        return self.gmf_dim + 1

    def init_shared(self, n_items: int, generator: np.random.Generator) -> dict[str, npt.NDArray[np.float64]]:
        """Item vectors N(0, 0.01²), biases zero."""
        item = generator.normal(0, INIT_SD, (n_items, self.gmf_dim))
        return {"item": item, "item_bias": np.zeros((n_items, 1)), "bias": np.zeros((1, 1))}

    def logits(self, own: Tensors) -> Float[Tensor, "C K"]:
        """P · v + b_u + b_j + µ."""
        p, b_u = own["user"][:, :-1, None], own["user"][:, -1:, None]
        return (own["item"] @ p + b_u + own["item_bias"] + own["bias"]).squeeze(2)
