"""Why an item is recommended: how much its score would fall without each of the user's own items.

That needs no formula of a method's own, only one that scores from the history at once. For EASE it is a weight of the
table, for ItemKNN a similarity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.data.history import History
from fedrecgel.data.item_sets import IntArray, ItemSets

if TYPE_CHECKING:
    from fedrecgel.runs.recommend import Audience

LONGEST = 500
"""Own items of which each is left out in turn; of a longer history, only so many."""
REASONS = 3
"""Own items named for a recommendation."""


def reasons(audience: Audience, user: int, items: Int[Tensor, " m"]) -> list[list[int]]:
    """For each item, the user's own items that speak for it most, best first; nothing where a method has private parts.

    A method with private parts would have to learn them anew without each item.
    """
    own = audience.history
    first, last = int(own.ptr[user]), int(own.ptr[user + 1])
    if audience.method.fold_in_rounds or not len(items) or last - first < 1:
        return [[] for _ in items]
    explain = getattr(audience.method, "explain", None)
    if explain is not None:  # a method that knows better: [C, M, H]
        one = slice(user, user + 1)
        falls = explain(audience.down.of(one), History(own, torch.tensor([user])), items[None])[0].mT
    else:
        falls = score_falls(audience, user, items)
    best = falls.topk(min(REASONS, len(falls)), dim=0)
    return [
        [int(own.items[first + place]) for place, fall in zip(places, values, strict=True) if fall > 0]
        for places, values in zip(best.indices.T.tolist(), best.values.T.tolist(), strict=True)
    ]


def score_falls(audience: Audience, user: int, items: Int[Tensor, " m"]) -> Float[Tensor, "h m"]:
    """By how much the score of each item falls without each own item."""
    own, (first, last) = audience.history, audience.history.ptr[user : user + 2]
    size = min(int(last - first), LONGEST)
    kept = ~np.eye(size, int(last - first), dtype=bool)  # row h leaves the h-th own item out
    everything = np.ones((1, kept.shape[1]), dtype=bool)
    at = np.arange(first, last)
    histories = _histories(own, at, np.concatenate([everything, kept]))
    ids, down = torch.arange(size + 1), audience.down.of(torch.full((size + 1,), user))
    scores = audience.method.score(audience.private, down, History(histories, ids), items.expand(size + 1, -1))
    return scores[:1] - scores[1:]


def _histories(own: ItemSets, at: IntArray, kept: npt.NDArray[np.bool_]) -> ItemSets:
    """One history for each row of `kept`, with those of the entries `at`; recency stays what it was."""
    rows, places = np.nonzero(kept)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(kept)))])
    chosen = at[places]
    recency = None if own.recency is None else own.recency[chosen]
    return ItemSets(own.n_items, ptr, own.items[chosen], own.counts[chosen], recency)
