"""Bases of methods whose clients hand over their histories: references that add counts up, and centralised ceilings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedrecgel.data.federation import ClientBatch
from fedrecgel.data.history import History
from fedrecgel.draws import Draws
from fedrecgel.methods.base import LARGE, Fraction, Method, Radius
from fedrecgel.methods.messages import ClientResult, Download, Inbox, Need, Problem, Server, Upload
from fedrecgel.numerics.counts import CountMatrix
from fedrecgel.tables import State
from fedrecgel.tensors import Ids, Tensors

FADING: Mapping[str, object] = {"decay": [0.0, 0.2, 0.5, 1.0]}
"""Where `fedrecgel tune` looks for the decay of a centralised method."""


@dataclass(frozen=True, kw_only=True)
class HistorySent(Method):
    """Base of methods whose clients send how often each of their items occurs, and learn nothing of their own."""

    fraction: Fraction = 1.0
    """Share of clients drawn each round; the others' histories are left out."""

    @property
    def rounds(self) -> int:
        """One suffices."""
        return 1

    @property
    def fold_in_rounds(self) -> int:
        """Newcomers are scored at once."""
        return 0

    @property
    def samples_negatives(self) -> bool:
        """Own items are all there is."""
        return False

    @property
    def scores_by_product(self) -> bool:
        """From sums over own items."""
        return True

    @property
    def magnitude(self) -> float:
        """Counts of one item."""
        return LARGE

    def init_clients(self, problem: Problem, ids: Ids, draws: Draws) -> State:
        """Nothing private is learnt."""
        return State()

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """Send how often each item occurs in the own training rows."""
        (name,) = self.sends
        counts = batch.row_counts.to(batch.labels.dtype).unsqueeze(2)
        ones = torch.ones(len(batch.ids), dtype=counts.dtype, device=counts.device)
        return ClientResult(private, Upload(batch.ids, {}, {name: counts}, batch.rows, ones))


@dataclass(frozen=True, kw_only=True)
class Centralised(HistorySent):
    """Base of ceilings: every client hands over its history, and the server fits to all of them at once."""

    kind: ClassVar[Literal["federated", "reference", "centralised"]] = "centralised"
    sends: ClassVar[frozenset[str]] = frozenset({"interactions"})

    decay: Radius = 0.0
    """How fast own items fade when a user is scored: the latest weighs 1, the one before 2^-decay, then 3^-decay, ...;
    0 weighs all alike, and so do data without an order."""

    @property
    def server_needs(self) -> Need:
        """Every history: nothing is federated here."""
        return Need.EACH

    def server_update(self, server: Server, inbox: Inbox, round: int, draws: Draws) -> Server:
        """Fit to the histories of this round's cohort."""
        sent = ((upload.ids, upload.at, upload.rows["interactions"]) for upload in inbox.each())
        seen = CountMatrix.from_uploads(sent, len(inbox.total()["interactions"]))
        return Server(self.fit(seen, server.shared))

    @abstractmethod
    def fit(self, seen: CountMatrix, shared: Tensors) -> Tensors:
        """New shared tensors from all histories, one row of counts per client, and the last ones."""


def add_rows(table: Float[Tensor, "n n"], history: History, decay: float) -> Float[Tensor, "C n"]:
    """The sum of the own items' rows of a table, each as heavy as its item is recent."""
    fading = history.fade(decay, table.dtype)
    return embedding_bag(history.items, table, history.ptr[:-1], mode="sum", per_sample_weights=fading)
