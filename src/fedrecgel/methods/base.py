"""What a federated method is: a frozen set of hyper-parameters and eight functions over a client axis.

A method knows no engine, no channel, no file and no clock. It holds no tensors: private ones are handed to
`client_update` and handed back, shared ones live in `Server`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from fedrecgel.data.federation import ClientBatch, Sampler
from fedrecgel.data.history import History
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError
from fedrecgel.methods.messages import ClientResult, Download, Inbox, Minima, Need, Problem, Server
from fedrecgel.tables import State
from fedrecgel.tensors import Ids, Tensors

T = TypeVar("T")
Rate = Annotated[float, Meta(gt=0)]
Radius = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Size = Annotated[int, Meta(ge=1)]
HIDES = 100
"""Clients whose sum hides each of them, unless a method needs more or fewer: docs/privacy.md has the measurements."""
LARGE = 65536.0
"""The `magnitude` of methods that send counts, or numbers times counts."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base of all methods; fields of subclasses are their hyper-parameters."""

    kind: ClassVar[Literal["federated", "reference", "centralised"]] = "federated"
    paper: ClassVar[str]
    """Where it is described."""
    sends: ClassVar[frozenset[str]]
    """Names that leave the device at some setting of the default model; `leaves_device` has those of this one."""
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    """Named sets of hyper-parameters; `released` has the published settings, with which experiments repeat a paper."""
    search: ClassVar[Mapping[str, object]] = {}
    """Where `fedrecgel tune` looks when a config has no table [search], in the same format; a key without a section is
    a hyper-parameter. `fraction` is searched for every method. A range holds the default and is about two orders of
    magnitude wide, so that no method is searched more finely than another."""
    contract: ClassVar[Mapping[str, object]] = {}
    """Hyper-parameters with which the contract is checked, see testing.py: a small model that learns quickly."""
    draws_nothing: ClassVar[bool] = False
    """Whether every seed gives the same result, so that experiments need one."""

    fraction: Fraction = 0.1
    """Share of clients drawn each round."""

    @property
    def server_needs(self) -> Need:
        """What `server_update` reads from the inbox."""
        return Need.SUM

    @property
    def samples_negatives(self) -> bool:
        """Whether a batch holds negatives, drawn anew each round; else it holds the client's own items alone."""
        return True

    @property
    def scores_by_product(self) -> bool:
        """Whether scores of the whole catalogue take little memory beside their own: many clients share a product."""
        return False

    @property
    def rounds(self) -> int | None:
        """Rounds after which all is learnt: `run.rounds` defaults to it, and fewer are refused; None for any number."""
        return None

    @property
    def fold_in_rounds(self) -> int:
        """Local rounds in which a newcomer learns its private part; 0 where there is none."""
        return 10

    @property
    def continues(self) -> bool:
        """Whether another run can go on from its shared part; not where the server has something of each client."""
        return type(self).broadcast is Method.broadcast

    @property
    def smallest_cohort(self) -> int:
        """Clients that a sum must cover to hide each of them, as far as the method's own formulas tell."""
        return 1

    @property
    def smallest_sum(self) -> int:
        """Clients from which on a sum tells attacks hardly more of one of them than popularity does, as measured.

        Channels that show sums alone refuse smaller cohorts. Where nothing was measured for a method, the number that
        served all that were.
        """
        return max(self.smallest_cohort, HIDES)

    def hides_from(self, shared: Tensors) -> Minima:
        """Both minima for a round in which clients receive this; a method may have rounds of different kinds."""
        return Minima(self.smallest_cohort, self.smallest_sum)

    @property
    def magnitude(self) -> float:
        """No number that a client sends, times its weight, is larger at usual settings: room in fixed-point sums."""
        return 8.0

    def leaves_device(self) -> frozenset[str]:
        """Names that leave the device at these hyper-parameters."""
        return self.sends

    def settled(self, problem: Problem, *, goes_on: bool = False) -> Method:
        """The method as it runs on these data, or goes on from another run: what was left to it is decided.

        Raises:
            ConfigError: a setting means the run to go on from, and there is none.
        """
        return self

    @abstractmethod
    def init_server(self, problem: Problem, draws: Draws) -> Server:
        """The server before round 0."""

    @abstractmethod
    def init_clients(self, problem: Problem, ids: Ids, draws: Draws) -> State:
        """State of clients that never trained. Tables, and what `State.start` takes, are the same for all."""

    def cohort(self, server: Server, population: Int[Tensor, " m"], round: int, draws: Draws) -> Ids:
        """Who trains this round: ⌊fraction · m⌋ clients, at least one, uniformly without replacement."""
        size = max(1, int(self.fraction * len(population)))
        chosen = draws.generator("cohort", round).choice(len(population), size, replace=False)
        return population[torch.from_numpy(chosen)]

    def broadcast(self, server: Server, ids: Ids) -> Download:
        """What these clients receive."""
        return Download(server.shared)

    @abstractmethod
    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """One round on C devices. Nothing may mix clients: axis 0 is never reduced."""

    @abstractmethod
    def server_update(self, server: Server, inbox: Inbox, round: int, draws: Draws) -> Server:
        """The server after a round; may write into the memory of the server it is given."""

    @abstractmethod
    def score(
        self, private: State, down: Download, history: History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """Scores of items for each client, which knows its own training rows; higher ranks first."""

    def welcome(self, server: Server, n_clients: int) -> Download:
        """What so many newcomers receive, who never took part: nothing on the server is theirs.

        Raises:
            ConfigError: the method has nothing for them.
        """
        if type(self).broadcast is not Method.broadcast:
            raise ConfigError(
                f"{type(self).__name__} sends each client something of its own (`broadcast`), and does not say what a "
                f"user gets who never took part. Write `{type(self).__name__}.welcome`, or train again with this user."
            )
        return Download(server.shared)

    def fold_in(self, problem: Problem, down: Download, own: Sampler, ids: Ids, draws: Draws) -> State:
        """The private part of newcomers: what their devices learn in a few rounds of which nothing is sent.

        Args:
            problem: that of the run.
            down: what `welcome` gave these clients.
            own: their rows.
            ids: their numbers in `own`.
            draws: theirs; a client gets the same whoever is folded in beside it.
        """
        private = self.init_clients(problem, ids, draws)
        for number in range(self.fold_in_rounds):
            batch = own.batch(ids, number, draws, negatives=self.samples_negatives)
            private = self.local_round(private, down, batch, number, draws)
        return private

    def local_round(self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws) -> State:
        """A round of `fold_in`; a method may leave out what only uploads need."""
        return self.client_update(private, down, batch, round, draws).private


def local_epochs(
    step: Callable[[T, Float[Tensor, "C K"], Float[Tensor, " C"]], tuple[T, Float[Tensor, " C"]]],
    start: T,
    batch: ClientBatch,
    epochs: int,
    size: int,
    round: int,
    draws: Draws,
) -> tuple[T, Float[Tensor, " C"]]:
    """Epochs of mini-batches on every device; where they end, and each client's mean loss.

    Args:
        step: from a state, the weights of the mini-batch's items and 1 for each client that has examples in it, else 0,
            to the next state and each client's loss; with weights of 0 it must change nothing of a client.
        start: the first state.
        batch: the round's examples.
        epochs: passes over them.
        size: examples in a mini-batch.
        round: of which these are the examples.
        draws: shuffles them.
    """
    state = start
    losses, batches = (batch.labels.new_zeros(len(batch.ids)) for _ in range(2))
    for epoch in range(epochs):
        for weights in batch.steps(size, round, draws, epoch):
            active = (weights.sum(1) > 0).to(losses.dtype)
            state, loss = step(state, weights, active)
            losses += loss
            batches += active
    return state, losses / batches.clamp(min=1)
