"""A loss over the whole catalogue that costs as much as the own items: the rest comes from a d x d Gram matrix.

For a client with items H and scores s_j = u · v_j (Hu et al., ICDM 2008, with weight w for what was not observed)::

    L = Σ_H (1 - s_j)² + w Σ_{j not in H} s_j²
      = Σ_H (1 - s_j)² - w Σ_H s_j² + w uᵀ G u,    G = Σ_j v_j v_jᵀ = VᵀV

The first two sums see own rows only. By V the last term has the gradient 2 w V u uᵀ: dense, but a server that knows
Σ_u u uᵀ adds it up for all clients at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedrecgel.tensors import Tensors


class CatalogueSlopes(NamedTuple):
    """The loss of each client and its gradients, without the part of V that the server adds."""

    loss: Float[Tensor, " C"]
    user: Float[Tensor, "C d"]
    rows: Float[Tensor, "C K d"]


@dataclass(frozen=True)
class CatalogueLoss:
    """Squared error of own items against 1, and of all others against 0."""

    weight: float
    """w of an item that the client does not have."""

    def differentiate(
        self,
        user: Float[Tensor, "C d"],
        rows: Float[Tensor, "C K d"],
        own: Bool[Tensor, "C K"],
        gram: Float[Tensor, "d d"],
    ) -> CatalogueSlopes:
        """L and its gradients on the device.

        Args:
            user: u of each client.
            rows: v of its items.
            own: False for padding.
            gram: G of the whole table.
        """
        x = own.to(user.dtype)
        scores, everywhere = (rows @ user[:, :, None]).squeeze(2) * x, user @ gram
        loss = ((x - scores).square() - self.weight * scores.square()).sum(1)
        slope = 2 * (scores - x) - 2 * self.weight * scores
        g_user = (slope[:, None] @ rows).squeeze(1) + 2 * self.weight * everywhere
        total = loss + self.weight * (everywhere * user).sum(1)
        return CatalogueSlopes(total, g_user, slope[:, :, None] * user[:, None])

    def rest(self, table: Float[Tensor, "n d"], users: Float[Tensor, "d d"]) -> Float[Tensor, "n d"]:
        """What is missing of the gradient by V, summed over clients whose Σ u uᵀ is known."""
        return 2 * self.weight * table @ users


def gram_of_items(shared: Tensors) -> Float[Tensor, "d d"]:
    """G of the table `items`."""
    table: Tensor = shared["items"]
    return torch.matmul(table.mT, table)
