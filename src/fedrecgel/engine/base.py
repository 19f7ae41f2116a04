"""Engine: where the clients live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from fedrecgel.evaluation.metrics import metrics
from fedrecgel.evaluation.ranking import Ranks, TieRule
from fedrecgel.methods.messages import Inbox, Server
from fedrecgel.tensors import Ids


class Trained(NamedTuple):
    """What a cohort sent, its mean loss, what travelled, how many answers count, how many were refused and why."""

    inbox: Inbox
    loss: Float[Tensor, ""] | None
    bytes_up: int
    bytes_down: int
    n_answers: int
    refused: Mapping[str, int]


class Measured(NamedTuple):
    """How well a model ranks."""

    metrics: dict[str, float]
    ranks: Ranks | None
    """Of every client; None where only sums of metrics left the nodes."""


def measured(ranks: Ranks, ks: Sequence[int], ties: TieRule) -> Measured:
    """From ranks."""
    return Measured(metrics(ranks, ks, ties), ranks)


@runtime_checkable
class Engine(Protocol):
    """Where the clients live: in this process, or behind a network."""

    def population(self) -> Ids:
        """Clients that can be drawn."""

    def train(self, server: Server, cohort: Ids, round: int) -> Trained:
        """Broadcast, let the cohort train, collect what it sends."""

    def measure(self, server: Server, held_out: str, against: str, ks: Sequence[int], ties: TieRule) -> Measured:
        """Every metric over all clients; with their ranks, unless the channel hides them."""

    def ranks(self, server: Server, held_out: str, against: str) -> Ranks:
        """Rank every client's held-out item ("test" or "validation") against "candidates" or the "catalogue"."""
