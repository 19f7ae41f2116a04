"""Seen first: the own training items by how often they occur, then all others by popularity.

Idea: recommend what the user had already. Where nobody's held-out item is among the own training rows this is
popularity to the last digit. Where it is above popularity, the data leak: on Lastfm-2K as published, one row per tag,
it is above every published method. Hence it stands beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.data.federation import ClientBatch
from fedrecgel.draws import Draws
from fedrecgel.methods.base import ClientResult, Download, Problem
from fedrecgel.methods.popularity import Popularity
from fedrecgel.numerics.counts import remember
from fedrecgel.tables import PersonalTable, State
from fedrecgel.tensors import Ids


@dataclass(frozen=True, kw_only=True)
class SeenFirst(Popularity):
    """Own training items first, then popularity; exposes data that leak."""

    def init_clients(self, problem: Problem, ids: Ids, draws: Draws) -> State:
        """No own items yet."""
        return State(tables={"own": PersonalTable.common(problem.tensor(torch.zeros(problem.n_items, 1)), len(ids))})

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """Send what popularity sends, and remember the own rows."""
        sent = super().client_update(private, down, batch, round, draws)
        return sent._replace(private=State(tables={"own": remember(private.tables["own"], batch)}))

    def score(self, private: State, down: Download, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """Own count, an integer, plus popularity scaled to below one; double precision keeps both exact."""
        popularity = down.shared["counts"].double().squeeze(1)
        own = private.tables["own"].rows(items).double().squeeze(2)
        return own + (popularity / (1 + popularity.max()))[items]
