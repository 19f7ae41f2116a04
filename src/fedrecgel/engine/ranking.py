"""Which items of a block of clients are scored, and what their scores make of the held-out ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.data.item_sets import IntArray
from fedrecgel.data.split import HeldOut, Split
from fedrecgel.evaluation.ranking import Ranks, rank_against, rank_several


@dataclass(frozen=True)
class Ranking:
    """Held-out items of a split, to be ranked against "candidates" or the "catalogue"."""

    split: Split
    held_out: HeldOut
    against: str
    sample: IntArray | None = None
    """Clients that are ranked, ascending; None for all that have held-out items."""

    @classmethod
    def of(cls, split: Split, held_out: str, against: str, sample: IntArray | None = None) -> Ranking:
        """The "test" or "validation" items."""
        return cls(split, split.held_out(held_out), against, sample)

    @property
    def clients(self) -> IntArray:
        """Those that have held-out items, or a sample of them."""
        return np.flatnonzero(self.held_out.sizes) if self.sample is None else self.sample

    @property
    def n_scores(self) -> int:
        """Items scored for one client, at most."""
        if self.against == "catalogue":
            return self.split.n_items
        return int(self.held_out.candidates.shape[1] + self.held_out.sizes.max(initial=1))

    def blank(self) -> Ranks:
        """Room for the ranks of all clients, to be written block by block."""
        sizes = self.held_out.sizes[self.clients]
        ptr = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])) if self.split.several else None
        above, tied = torch.empty(2, int(sizes.sum()), dtype=torch.int64)
        return Ranks(above, tied, ptr)

    def items(self, users: IntArray) -> Int[Tensor, "C M"]:
        """What is scored for these clients: their held-out items, then the candidates; or the whole catalogue."""
        if self.against == "catalogue":
            return torch.arange(self.split.n_items).expand(len(users), -1)
        others = np.sort(self.held_out.candidates[users], axis=1)  # neighbours in the table are found faster
        return torch.from_numpy(np.concatenate([self.held_out.pad(users)[0], others], axis=1).astype(np.int64))

    def rank(self, users: IntArray, scores: Float[Tensor, "C M"]) -> Ranks:
        """Ranks from the scores of these items."""
        padded, real = self.held_out.pad(users)
        targets, valid = torch.from_numpy(padded.astype(np.int64)), torch.from_numpy(real)
        left_out = None
        if self.against == "catalogue":
            own, left_out = scores.gather(1, targets), self._observed(users)
            others = scores.masked_fill(left_out, -torch.inf)
        else:
            own, others = scores[:, : targets.shape[1]], scores[:, targets.shape[1] :]
        if self.split.several:
            return rank_several(own, valid, others, left_out)
        if self.against == "catalogue":
            others = others.scatter(1, targets, -torch.inf)
        return rank_against(own[:, 0], others)

    def left_out(self, users: IntArray) -> Bool[Tensor, "C n"]:
        """Items that these clients are not shown: those they have touched, but for the held-out ones."""
        padded, _ = self.held_out.pad(users)
        return self._observed(users).scatter(1, torch.from_numpy(padded.astype(np.int64)), value=False)

    def _observed(self, users: npt.NDArray[np.int64]) -> Bool[Tensor, "C n"]:
        """True for every item a client has touched: these are not recommended again."""
        observed = self.split.observed
        owner, at = observed.flat(users)
        mask = torch.zeros(len(users), observed.n_items, dtype=torch.bool)
        mask[torch.from_numpy(owner), torch.from_numpy(observed.items[at]).long()] = True
        return mask
