"""Seen first: the own training items by how often they occur, then all others by popularity.

Idea: recommend what the user had already. Where nobody's held-out item is among the own training rows this is
popularity to the last digit. Where it is above popularity, the data leak: on Lastfm-2K as published, one row per tag,
it is above every published method. So it stands beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.methods.popularity import Popularity


@dataclass(frozen=True, kw_only=True)
class SeenFirst(Popularity):
    """Own training items first, then popularity; exposes data that leak."""

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """Own count, an integer, plus popularity scaled to below one; double precision keeps both exact."""
        popularity = down.shared["counts"].double().squeeze(1)
        seen = popularity.new_zeros(len(items), history.n_items)
        seen[history.owners, history.items] = history.counts.double()
        return seen.gather(1, items) + (popularity / (1 + popularity.max()))[items]
