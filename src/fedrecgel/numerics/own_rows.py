"""The own rows of some devices as a rectangle, with or without one that is held back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.data.history import History
from fedrecgel.draws import Draws
from fedrecgel.tensors import Ids

USER_POWER = 0.25
"""Exponent a of the normalisation by sizes of histories."""


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Distinct items of C devices."""

    items: Int[Tensor, "C H"]
    x: Float[Tensor, "C H"]
    """1 for an item that counts, 0 for padding and for what is held back."""
    later: Float[Tensor, "C H"] | None
    """How many own items that count came later; None where the order is not known."""

    @classmethod
    def of(cls, history: History, dtype: torch.dtype) -> OwnRows:
        """All that these devices know of themselves."""
        items, mask = history.pad()
        later = None
        if history.recency is not None:
            later = torch.zeros_like(mask, dtype=dtype).masked_scatter_(mask, history.recency.to(dtype))
        return cls(items, mask.to(dtype), later)

    @property
    def m(self) -> Float[Tensor, " C"]:
        """How many items count."""
        return self.x.sum(1)

    def choose_one(self, ids: Ids, draws: Draws) -> Bool[Tensor, "C H"]:
        """The latest item of each device that has several, or a random one where the order is not known."""
        if self.later is not None:
            chosen = self.later == 0
        else:
            chance = draws.uniform("held-back", 0, ids.numpy(), torch.zeros_like(ids).numpy())  # the same in all rounds
            place = (torch.from_numpy(chance).to(self.x.device) * self.m).long()
            chosen = torch.arange(self.items.shape[1], device=place.device) == place[:, None]
        return chosen & (self.x > 0) & (self.m > 1)[:, None]

    def items_at(self, chosen: Bool[Tensor, "C H"]) -> Int[Tensor, " C"]:
        """The item chosen on each device, of at most one; 0 where there is none."""
        return (self.items * chosen).sum(1)

    def without(self, chosen: Bool[Tensor, "C H"]) -> OwnRows:
        """The same rows as if each device did not know the one chosen, its latest where there is an order."""
        earlier = self.later
        if earlier is not None:
            earlier = (earlier - chosen.any(1)[:, None].to(earlier.dtype)).clamp(min=0)
        return replace(self, x=self.x * ~chosen, later=earlier)

    def fade(self, decay: float) -> Float[Tensor, "C H"]:
        """(1 + number of later own items)^-decay for items that count, or 1 where the order is not known; else 0."""
        return self.x if self.later is None or decay == 0 else self.x * (1 + self.later) ** -decay

    def weigh(self, decay: float = 0.0) -> Float[Tensor, "C H"]:
        """w_i = m^-a times what `fade` gives: an item says less of a user who has many."""
        return self.m.clamp(min=1)[:, None] ** -USER_POWER * self.fade(decay)

    def of_clients(self, some: slice) -> OwnRows:
        """The rows of some of the devices."""
        return OwnRows(self.items[some], self.x[some], None if self.later is None else self.later[some])
