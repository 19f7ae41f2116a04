"""What the lists of all clients show together: which share of the catalogue, and how much of it is popular anyway.

Ties count by expectation here, too: of g items with the score of rank K, of which q fit, each is shown with probability
q / g, for each client anew. So popularity is not credited with whichever of its equals happens to come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

POPULAR = 0.1
"""The share of the catalogue that counts as popular."""


class Shown(NamedTuple):
    """Of some clients and one K: items that may be shown, and the logarithm of the chance that they are not."""

    items: Int[Tensor, " s"]
    log_missed: Float[Tensor, " s"]


class Coverage:
    """Counts over the lists of many clients."""

    def __init__(self, n_items: int, ks: Sequence[int]) -> None:
        self.ks = sorted(ks)
        self._log_missed = torch.zeros(len(self.ks), n_items, dtype=torch.float64)
        self._places = torch.zeros(len(self.ks), n_items, dtype=torch.float64)

    def shown(self, scores: Float[Tensor, "C n"], left_out: Bool[Tensor, "C n"]) -> list[Shown]:
        """What these clients see for each K; nothing is counted yet, so that threads may do this.

        A score that is not a number ranks first, as for metrics.
        """
        lists = scores.double().nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
        lists = lists.masked_fill(left_out, -torch.inf)
        best = lists.topk(min(self.ks[-1], lists.shape[1]), dim=1).values
        found = []
        for k in self.ks:
            last = best[:, min(k, best.shape[1]) - 1, None]
            client, item = torch.nonzero((lists >= last) & ~left_out, as_tuple=True)
            above, tied = (lists > last).sum(1), ((lists == last) & ~left_out).sum(1)
            room = ((k - above).double() / tied.clamp(min=1)).clamp(max=1)
            chance = torch.where(lists[client, item] > last[client, 0], 1, room[client])
            found.append(Shown(item, torch.log1p(-chance)))
        return found

    def add(self, shown: Sequence[Shown]) -> None:
        """Count."""
        for missed, places, part in zip(self._log_missed, self._places, shown, strict=True):
            missed.index_add_(0, part.items, part.log_missed)
            places.index_add_(0, part.items, -torch.expm1(part.log_missed))

    def result(self) -> dict[str, float]:
        """Coverage@K for each K, as a fraction."""
        return {
            f"Coverage@{k}": float(-torch.expm1(row).mean()) for k, row in zip(self.ks, self._log_missed, strict=True)
        }

    def popular(self, trained: npt.NDArray[np.int64]) -> dict[str, float]:
        """Popular@K for each K: the share of all places that goes to the tenth of the catalogue most users train on.

        Under `clicks` what this tenth has of the training data: more than that is more than users ask for.

        Args:
            trained: how many users train on each item; of those that tie at the border each counts in part.
        """
        counts = torch.from_numpy(trained).double()
        room = max(1, round(POPULAR * len(counts)))
        last = counts.sort(descending=True).values[room - 1]
        above, tied = counts > last, counts == last
        part = above.double() + tied.double() * (room - above.sum()) / tied.sum()
        shares = {f"Popular@{k}": float(row @ part / row.sum()) for k, row in zip(self.ks, self._places, strict=True)}
        return {"clicks": float(counts @ part / counts.sum()), **shares}
