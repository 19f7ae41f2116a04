"""Engine: where the clients live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.methods.base import Inbox, Server
from fedrecgel.tensors import Ids


class Trained(NamedTuple):
    """What a cohort sent, its mean loss, what travelled, how many answers count, how many were refused and why."""

    inbox: Inbox
    loss: Float[Tensor, ""] | None
    bytes_up: int
    bytes_down: int
    n_answers: int
    refused: Mapping[str, int]


@runtime_checkable
class Engine(Protocol):
    """Where the clients live: in this process, or behind a network."""

    def population(self) -> Ids:
        """Clients that can be drawn."""

    def train(self, server: Server, cohort: Ids, round: int) -> Trained:
        """Broadcast, let the cohort train, collect what it sends."""

    def ranks(self, server: Server, held_out: str, against: str) -> Ranks:
        """Rank every client's held-out item ("test" or "validation") against "candidates" or the "catalogue"."""
