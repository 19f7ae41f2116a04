"""Popularity: rank items by how often they occur in all training rows.

Idea: every client sends one count per item, the server adds them up, and everybody gets the same ranking. It learns
nothing about anyone, and on several data sets of the field no published method is above it by more than noise
(FilmTrust, Amazon-Video). Hence it stands in every table. It is also the smallest complete method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.data.history import History
from fedrecgel.draws import Draws
from fedrecgel.methods.base import Download, HistorySent, Inbox, Need, Problem, Server
from fedrecgel.tables import State


@dataclass(frozen=True, kw_only=True)
class Popularity(HistorySent):
    """Counts of training rows, summed over clients; one round with everyone is enough."""

    kind: ClassVar[Literal["federated", "reference", "centralised"]] = "reference"
    paper: ClassVar[str] = "folklore"
    sends: ClassVar[frozenset[str]] = frozenset({"counts"})
    draws_nothing: ClassVar[bool] = True

    @property
    def server_needs(self) -> Need:
        """Only a sum that may stay encrypted."""
        return Need.LINEAR

    def init_server(self, problem: Problem, draws: Draws) -> Server:
        """No counts yet."""
        return Server({"counts": problem.tensor(torch.zeros(problem.n_items, 1))})

    def server_update(self, server: Server, inbox: Inbox, round: int, draws: Draws) -> Server:
        """The counts of this round's cohort."""
        return Server({"counts": inbox.total()["counts"]})

    def score(
        self, private: State, down: Download, history: History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The count itself."""
        return down.shared["counts"].squeeze(1)[items]
