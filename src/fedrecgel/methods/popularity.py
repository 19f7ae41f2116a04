"""Popularity: rank items by how often they occur in all training rows.

Idea: every client sends one count per item, the server adds them up, and everybody gets the same ranking. It learns
nothing about anyone, and on several data sets of the field no published method is above it by more than noise
(FilmTrust, Amazon-Video). So it stands in every table. It is also the smallest complete method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.methods import author as fed


@dataclass(frozen=True, kw_only=True)
class Popularity(fed.HistorySent):
    """Counts of training rows, summed over clients; one round with everyone is enough."""

    kind: ClassVar[Literal["federated", "reference", "centralised"]] = "reference"
    paper: ClassVar[str] = "folklore"
    sends: ClassVar[frozenset[str]] = frozenset({"counts"})
    draws_nothing: ClassVar[bool] = True

    @property
    def server_needs(self) -> fed.Need:
        """Only a sum that may stay encrypted."""
        return fed.Need.LINEAR

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """No counts yet."""
        return fed.Server({"counts": problem.tensor(torch.zeros(problem.n_items, 1))})

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """The counts of this round's cohort."""
        return fed.Server({"counts": inbox.total()["counts"]})

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The count itself."""
        return down.shared["counts"].squeeze(1)[items]
