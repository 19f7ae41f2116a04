"""The harness of all oracles: what a device draws, both writings from one start, and their comparison."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.data.federation import Federation, SamplingSettings
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.gate import GateSettings
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Server
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors, copy
from tests.builders import engine_of, problem_of

ROUNDS, SEED = 4, 3
TOLERANCE = 1e-10
"""Relative to the largest entry, in float64."""
NATIVE_SAMPLING = SamplingSettings(negatives=3, repeats=True, redraw=False, exclude_heldout_from_negatives=True)
"""Of the released codes: every row counts, also one that repeats, and negatives are drawn once."""
SIZES = (5, 24, 6, 9, 13, 5, 20, 7, 11, 8)
MORE_SIZES = (5, 16, 6, 9, 13, 5, 12, 7, 11, 8, 6, 5, 15, 10)


def ragged_split(sizes: Sequence[int] = SIZES, n_items: int = 130, *, repeated: bool = True) -> Split:
    """Clients of very different lengths and so few items that negatives repeat; repeated rows, or equal times."""
    generator = np.random.default_rng(0)
    users = np.repeat(np.arange(len(sizes)), sizes)
    items = np.concatenate([generator.choice(n_items, size, replace=False) for size in sizes])
    if repeated:
        items[10] = items[11] = items[12]
    items[-1] = n_items - 1
    times = generator.permutation(len(users)) if repeated else generator.integers(0, 1000, len(users))
    frame = {"user": users, "item": items, "timestamp": times}
    return Interactions.from_frame(frame).split(candidates=20)


Examples = tuple[Tensor, Tensor]
"""Items and labels, in the same order."""


@dataclass(frozen=True)
class Devices:
    """What is on the devices: every client's examples of a round, one after another."""

    federation: Federation
    draws: Draws

    def examples(self, client: int, round: int) -> Examples:
        """S_u: positives, each followed by its negatives."""
        batch = self.federation.batch(torch.tensor([client]), round, self.draws)
        return batch.items[0], batch.labels[0]

    def mini_batches(self, client: int, round: int, size: int, epoch: int) -> list[Examples]:
        """S_u, shuffled anew in every epoch, in pieces of `size`; the last may be shorter."""
        items, labels = self.examples(client, round)
        places = np.arange(len(items))
        chances = self.draws.uniform(f"batches/{epoch}", round, np.full_like(places, client), places)
        order = torch.tensor(sorted(places.tolist(), key=lambda place: float(chances[place])))
        return [(items[piece], labels[piece]) for piece in torch.split(order, size)]

    def epochs(self, client: int, round: int, size: int, epochs: int) -> list[Examples]:
        """The mini-batches of all epochs, one after another."""
        return [batch for epoch in range(epochs) for batch in self.mini_batches(client, round, size, epoch)]


def mean_bce(logits: Tensor, labels: Tensor, *, saturating: bool) -> Tensor:
    """Cross-entropy on logits; where a float32 sigmoid has no slope left, no gradient passes (section 0.3)."""
    if saturating:
        p = torch.sigmoid(logits.detach().float())
        logits = torch.where(p * (1 - p) < 1e-12, logits.detach(), logits)
    return binary_cross_entropy_with_logits(logits, labels)


def layer_of(weight: Tensor, bias: Tensor) -> nn.Linear:
    """A linear layer with these weights [o, i] and biases [o]."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    layer.weight.data.copy_(weight)
    layer.bias.data.copy_(bias)
    return layer


def score_function(layer: nn.Linear) -> Tensors:
    """A layer to one number, under the names of the methods that keep it on the device."""
    return {"w": layer.weight.detach()[0], "b": layer.bias.detach()[0]}


class Oracle(ABC):
    """A whole federation, one client at a time."""

    shared: Tensors
    """The server's tensors."""

    @abstractmethod
    def train(self, cohort: list[int], devices: Devices, round: int) -> float | None:
        """One round; the mean loss of its clients, where it is compared."""

    @abstractmethod
    def private(self, client: int) -> Tensors:
        """What a device holds, item tables as they are: [n, d]."""

    @abstractmethod
    def scores(self, client: int) -> Tensor:
        """Scores of all items."""

    def more(self, server: Server, state: State) -> dict[str, tuple[Tensor, Tensor]]:
        """What else must agree: found in the method's server or devices, and wanted."""
        return {}


O = TypeVar("O", bound=Oracle)  # noqa: E741 - the letter of the class


@dataclass(frozen=True)
class Start(Generic[O]):
    """Both writings from the same start; the batched one in several ways of batching."""

    method: Method
    engines: list[LocalEngine]
    server: Server
    oracle: O

    @property
    def devices(self) -> Devices:
        """The draws are the same for all engines."""
        return Devices(self.engines[0].federation, self.engines[0].draws)

    def compare(self, tolerance: float = TOLERANCE, rounds: int = ROUNDS) -> O:
        """Run both for some rounds; server, private state and scores of every client must agree after each."""
        population, draws = self.engines[0].population(), self.engines[0].draws
        asleep = set(population.tolist())
        servers = [Server(copy(self.server.shared), copy(self.server.kept)) for _ in self.engines]
        for t in range(rounds):
            cohort = self.method.cohort(servers[0], population, t, draws)
            asleep -= set(cohort.tolist())
            loss = self.oracle.train(cohort.tolist(), self.devices, t)
            for number, engine in enumerate(self.engines):
                trained, when = engine.train(servers[number], cohort, t), f"engine {number}, round {t}"
                if loss is not None:
                    assert_close(trained.loss, torch.tensor(loss, dtype=torch.float64), f"{when}: loss", tolerance)
                servers[number] = self.method.server_update(servers[number], trained.inbox, t, engine.draws)
                compare_now(engine, servers[number], self.oracle, when, tolerance)
        assert asleep or getattr(self.method, "fraction", 0) > 0.5, "some clients should never take part"
        return self.oracle

    def oracle_scores(self, cohort: list[int], rounds: int, *clients: int) -> Tensor:
        """What the oracle alone comes to: scores of some clients after some rounds of the same cohort."""
        for t in range(rounds):
            self.oracle.train(cohort, self.devices, t)
        return torch.stack([self.oracle.scores(client) for client in clients])


def start(
    make: Callable[[Any, Tensors, State], O],
    method: Method,
    split: Split,
    sampling: SamplingSettings | None = None,
    scale: float = 1.0,
) -> Start[O]:
    """Engines of every client alone, a few together and all together, and the oracle.

    Args:
        make: of the method, the server's tensors and what all devices hold.
        method: of which not all clients take part in so few rounds.
        split: the data.
        sampling: of the examples.
        scale: of item tables: at the initial N(0, 0.01²) everything is nearly linear.
    """
    settings = [LocalSettings(chunk_examples=size, workers=1) for size in (1, 128, 100_000)]
    gate = GateSettings(max_norm=1e300)  # some options blow up on purpose
    engines = [engine_of(method, split, seed=SEED, local=local, sampling=sampling, gate=gate) for local in settings]
    server = first_server(engines[0], scale)
    state = engines[0].store.read(engines[0].population())
    return Start(method, engines, server, make(method, server.shared, state))


def first_server(engine: LocalEngine, scale: float = 1.0) -> Server:
    """The server before round 0, with item tables enlarged."""
    server = engine.method.init_server(problem_of(engine.federation.split), engine.draws)
    shared = {name: value * (scale if name.startswith("item") else 1) for name, value in server.shared.items()}
    return replace(server, shared=shared)


def assert_close(found: Tensor | None, wanted: Tensor, what: str, tolerance: float = TOLERANCE) -> None:
    """Equal but for another order of summation."""
    assert found is not None, what
    assert found.shape == wanted.shape, what
    assert torch.isfinite(wanted).all(), f"{what}: the oracle itself left the numbers"
    if found.numel():
        gap, scale = float((found - wanted).detach().abs().max()), max(float(wanted.detach().abs().max()), 1e-30)
        assert gap <= tolerance * scale, f"{what}: {gap / scale:.1e}"


def compare_now(engine: LocalEngine, server: Server, oracle: Oracle, when: str, tolerance: float) -> None:
    """Compare all there is at this moment."""
    for name, wanted in oracle.shared.items():
        assert_close(server.shared[name], wanted, f"{when}: {name} of the server", tolerance)
    state, scores = engine.store.read(engine.population()), catalogue_scores(engine, server)
    held = {**state.tensors, **{name: table.dense() for name, table in state.tables.items()}}
    for client in engine.population().tolist():
        for name, wanted in oracle.private(client).items():
            assert_close(held[name][client], wanted, f"{when}: {name} of client {client}", tolerance)
        assert_close(scores[client], oracle.scores(client), f"{when}: scores of client {client}", tolerance)
    for name, (found, wanted) in oracle.more(server, state).items():
        assert_close(found, wanted, f"{when}: {name}", tolerance)


def catalogue_scores(engine: LocalEngine, server: Server) -> Tensor:
    """Every client's scores of all items."""
    everyone, method = engine.population(), engine.method
    down = method.broadcast(server, everyone)
    history = engine.federation.history(everyone)
    catalogue = torch.arange(engine.federation.n_items).expand(len(everyone), -1)
    return method.score(engine.store.read(everyone), down, history, catalogue)


def run_of(method: Method, split: Split, rounds: int = ROUNDS, scale: float = 1.0) -> tuple[LocalEngine, Server]:
    """The batched writing alone."""
    engine = engine_of(method, split, seed=SEED)
    server = first_server(engine, scale)
    for t in range(rounds):
        cohort = method.cohort(server, engine.population(), t, engine.draws)
        server = method.server_update(server, engine.train(server, cohort, t).inbox, t, engine.draws)
    return engine, server


def assert_all_differ(ends: dict[str, Tensor], but: Sequence[tuple[str, str]] = ()) -> None:
    """Every option makes a difference, or agreement would show nothing; pairs of `but` are the same by definition."""
    names = list(ends)
    same = [(a, b) for k, b in enumerate(names) for a in names[:k] if torch.allclose(ends[a], ends[b])]
    assert same == list(but)
