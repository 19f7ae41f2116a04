"""Matrix factorisation, stepped through one example after another, as FedMF's devices do.

For examples (j, y) in their order::

    e = ∂loss/∂score at u · v_j,  u ← (1 - 2 γ λ) u - γ e v_j,  g_j = γ (e u + 2 µ v_j) with the new u
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.models.kernels import factors, kernels_allowed
from fedrecgel.numerics.losses import cross_entropy, cross_entropy_slope


class Walked(NamedTuple):
    """The user vector at the end, the gradient of each item row, and the loss summed over examples."""

    user: Float[Tensor, "C d"]
    rows: Float[Tensor, "C K d"]
    loss: Float[Tensor, " C"]


@dataclass(frozen=True)
class Walk:
    """How a client steps."""

    lr: float
    """γ."""
    reg_user: float
    """λ."""
    reg_item: float
    """µ."""
    loss: Literal["bce", "squared"]
    repeated: Literal["add", "last"]
    """An item drawn twice gets the sum of its gradients, or the last one."""

    def __call__(
        self,
        user: Float[Tensor, "C d"],
        rows: Float[Tensor, "C K d"],
        slots: Int[Tensor, "C L"],
        labels: Float[Tensor, "C L"],
        counts: Bool[Tensor, "C L"],
    ) -> Walked:
        """Step through the examples that count.

        Args:
            user: u of each client.
            rows: its items v.
            slots: which row each example is about.
            labels: y.
            counts: an example that does not count takes a step of length 0.

        Only the walk of u is a loop.
        """
        if kernels_allowed(user) and factors.available(user.shape[1]):
            numbers = (self.lr, self.reg_user, self.reg_item)
            squared, last = self.loss == "squared", self.repeated == "last"
            return Walked(*factors.walk(user, rows, slots, labels, counts, numbers, squared=squared, last=last))
        client = torch.arange(len(user), device=user.device)
        items, labels, active = rows[client, slots.T], labels.T, counts.T.to(rows.dtype)
        decay = 1 - 2 * self.lr * self.reg_user * active[:, :, None]
        steps: list[tuple[Tensor, Tensor, Tensor]] = []
        for item, label, weight, kept in zip(items, labels, active, decay, strict=True):
            score = (user * item).sum(1)
            error = self.slope(score, label).mul_(weight)
            user = torch.addcmul(user * kept, error[:, None], item, value=-self.lr)
            steps.append((score, error, user))
        scores, errors, users = (torch.stack(values) for values in zip(*steps, strict=True))
        own = self.lr * (errors[:, :, None] * users + 2 * self.reg_item * active[:, :, None] * items)
        if self.repeated == "last":
            own *= _last_of_its_slot(slots.T, counts.T)[:, :, None]
        gradient = torch.zeros_like(rows).index_put_((client, slots.T), own, accumulate=True)
        return Walked(user, gradient, (self.value(scores, labels) * active).sum(0))

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        """∂loss/∂score."""
        return 2 * (scores - labels) if self.loss == "squared" else cross_entropy_slope(scores, labels)

    def value(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example."""
        return (scores - labels).square() if self.loss == "squared" else cross_entropy(scores, labels)


def _last_of_its_slot(slots: Int[Tensor, "K C"], counts: Bool[Tensor, "K C"]) -> Bool[Tensor, "K C"]:
    """The last example that counts of each client's item."""
    position = torch.arange(1, len(slots) + 1, device=slots.device)[:, None] * counts
    last = torch.zeros_like(slots).scatter_reduce_(0, slots, position, "amax")
    return counts & (position == last.gather(0, slots))
