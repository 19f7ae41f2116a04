"""One hop over the user-item graph on the client axis, and the way back for gradients."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor


class Hop(NamedTuple):
    """How much of itself and of the mean of its neighbourhood, itself included, a vector becomes."""

    ego: float
    user: Float[Tensor, " C"]
    items: Float[Tensor, "C K"]

    @classmethod
    def over(cls, ego: float, own: Bool[Tensor, "C P"], degree: Float[Tensor, "C K"]) -> Hop:
        """A hop that leaves `ego` of every vector.

        Args:
            ego: share of the vector itself.
            own: True for each item of a client; padding is False.
            degree: how many users have each of the items that are propagated.
        """
        return cls(ego, (1 - ego) / (own.sum(1).to(degree.dtype) + 1), (1 - ego) / (degree + 1))

    def forward(
        self,
        user: Float[Tensor, "C d"],
        own_items: Float[Tensor, "C d"],
        rows: Float[Tensor, "C K d"],
        neighbours: Float[Tensor, "C K d"],
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C K d"]]:
        """û and v̂ from each vector and the sum of its neighbours; those of items are constants."""
        u = self.ego * user + self.user[:, None] * (user + own_items)
        return u, self.ego * rows + self.items[:, :, None] * (rows + neighbours)

    def backward(
        self, d_u: Float[Tensor, "C d"], d_v: Float[Tensor, "C K d"], own: Bool[Tensor, "C K"]
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C K d"]]:
        """Gradients of user and rows from those of û and v̂, where `own` are the rows summed up in `own_items`."""
        through_user = (self.user[:, None] * own)[:, :, None] * d_u[:, None]
        return (self.ego + self.user)[:, None] * d_u, (self.ego + self.items)[:, :, None] * d_v + through_user
