"""History: the training rows of some devices, which every device knows of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.data.item_sets import IntArray, ItemSets
from fedrecgel.tensors import Ids


@dataclass(frozen=True, eq=False)
class History:
    """Distinct items of C devices, how often each occurs and how recently; gathered when it is first read."""

    rows: ItemSets
    ids: Ids
    """Whose rows these are: client c of the batch is user ids[c]."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return self.rows.n_items

    @cached_property
    def _at(self) -> IntArray:
        return self.rows.flat(self.ids.numpy())[1]

    @cached_property
    def ptr(self) -> Int[Tensor, " p"]:
        """Client c has entries ptr[c] … ptr[c + 1] - 1."""
        sizes = self.rows.sizes(self.ids.numpy())
        return torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])).to(self.device)

    @cached_property
    def items(self) -> Int[Tensor, " r"]:
        """Distinct items, ascending for each client."""
        return torch.from_numpy(self.rows.items[self._at].astype(np.int64)).to(self.device)

    @cached_property
    def counts(self) -> Int[Tensor, " r"]:
        """How many rows show each item."""
        return torch.from_numpy(self.rows.counts[self._at].astype(np.int64)).to(self.device)

    @cached_property
    def recency(self) -> Int[Tensor, " r"] | None:
        """0 for the client's latest item, 1 for the one before, …; None where the order is not known."""
        if self.rows.recency is None:
            return None
        return torch.from_numpy(self.rows.recency[self._at].astype(np.int64)).to(self.device)

    @cached_property
    def owners(self) -> Int[Tensor, " r"]:
        """The client of each entry."""
        return torch.arange(len(self.ids), device=self.device).repeat_interleave(self.ptr.diff())

    def fade(self, decay: float, dtype: torch.dtype) -> Float[Tensor, " r"]:
        """(1 + recency)^-decay: older items weigh less; all weigh 1 at a decay of 0 or where no order is known."""
        if self.recency is None or decay == 0:
            return torch.ones(len(self.items), dtype=dtype, device=self.device)
        return (1.0 + self.recency.to(dtype)) ** -decay

    def pad(self) -> tuple[Int[Tensor, "C H"], Bool[Tensor, "C H"]]:
        """The items as a rectangle, and which of its entries are real."""
        sizes = self.ptr.diff()
        longest = int(sizes.max()) if len(sizes) else 0
        mask = torch.arange(longest, device=self.device) < sizes[:, None]
        return torch.zeros_like(mask, dtype=torch.int64).masked_scatter_(mask, self.items), mask
