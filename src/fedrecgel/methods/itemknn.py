"""ItemKNN: items that the same users touched are similar. Centralised: the server sees every history.

M. Deshpande and G. Karypis, "Item-Based Top-N Recommendation Algorithms", ACM TOIS 22(1), 2004,
https://doi.org/10.1145/963770.963776

Idea: cosine similarity between the columns of the binary user-item matrix. Every item keeps its nearest neighbours, and
every own item of a user votes for its neighbours with their similarity.

Deviations: a shrinkage constant in the denominator makes similarities of rare items smaller (0 is the paper); rows of
similarities are not normalised afterwards (an option of the paper).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.numerics.counts import CountMatrix, gram_columns
from fedrecgel.tensors import pick


@dataclass(frozen=True, kw_only=True)
class ItemKNN(fed.Centralised):
    """Sum of cosine similarities to the own items."""

    paper: ClassVar[str] = "Deshpande and Karypis, TOIS 2004"
    draws_nothing: ClassVar[bool] = True
    search: ClassVar[Mapping[str, object]] = {
        "neighbours": {"low": 10, "high": 1000, "log": True},
        "shrinkage": {"low": 1.0, "high": 100.0, "log": True},
        **fed.FADING,
    }

    neighbours: fed.Size = 100
    """Most similar items that an item votes for, k."""
    shrinkage: fed.Radius = 10.0
    """Added to the denominator of the cosine."""

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """No similarities yet."""
        votes = torch.zeros(problem.n_items, min(self.neighbours, problem.n_items))
        return fed.Server({"neighbours": votes.to(problem.device, torch.int64), "similarity": problem.tensor(votes)})

    def fit(self, seen: CountMatrix, shared: fed.Tensors) -> fed.Tensors:
        """The nearest neighbours of every item, a block of items at a time."""
        seen = seen.binary()
        norms = seen.at.bincount(minlength=seen.n_columns).to(seen.counts.dtype).sqrt()
        near: list[torch.return_types.topk] = []
        for first, last, together in gram_columns(seen):
            similar = together / (norms[:, None] * norms[first:last] + self.shrinkage).clamp(min=1)
            similar[first:last].fill_diagonal_(0)  # an item is no neighbour of its own
            near.append(similar.topk(shared["similarity"].shape[1], dim=0))
        similarity = torch.cat([block.values.mT for block in near])
        neighbours = torch.cat([block.indices.mT for block in near])
        return {"neighbours": neighbours, "similarity": similarity.to(shared["similarity"].dtype)}

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """Every own item votes for its neighbours, the louder the more recent it is."""
        similarity, n_items = down.shared["similarity"], history.n_items
        votes = similarity.new_zeros(len(items) * n_items)
        places = history.owners[:, None] * n_items + down.shared["neighbours"][history.items]
        loud = similarity[history.items] * history.fade(self.decay, similarity.dtype)[:, None]
        votes.index_add_(0, places.flatten(), loud.flatten())
        return pick(votes.view(len(items), n_items), items)
