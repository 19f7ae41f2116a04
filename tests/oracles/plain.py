"""What the oracles of several methods have in common: examples of one client, and the comparison with the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.data.federation import Federation, SamplingSettings
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.gate import GateSettings
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.methods.base import Method, Server
from fedrecgel.tensors import Tensors, copy
from tests.builders import engine_of

N_ITEMS, ROUNDS, TOLERANCE = 130, 4, 1e-10


def ragged_split() -> Split:
    """Clients of 5 to 24 items, one with repeated rows, in a catalogue so small that negatives repeat."""
    generator = np.random.default_rng(0)
    sizes = [5, 24, 6, 9, 13, 5, 20, 7, 11, 8]
    users = np.repeat(np.arange(len(sizes)), sizes)
    items = np.concatenate([generator.choice(N_ITEMS, size, replace=False) for size in sizes])
    items[10] = items[11] = items[12]
    items[-1] = N_ITEMS - 1
    frame = {"user": users, "item": items, "timestamp": generator.permutation(len(users))}
    return Interactions.from_frame(frame).split(candidates=50)


def engines_of(method: Method, split: Split, sampling: SamplingSettings | None = None) -> list[LocalEngine]:
    """Every client alone, a few together, all together."""
    settings = [LocalSettings(chunk_examples=size, workers=1) for size in (1, 128, 100_000)]
    open_gate = GateSettings(max_norm=1e300)  # some options blow up on purpose
    return [engine_of(method, split, seed=3, local=local, sampling=sampling, gate=open_gate) for local in settings]


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


def mean_bce(logits: Tensor, labels: Tensor, *, saturating: bool) -> Tensor:
    """Cross-entropy on logits; where a float32 sigmoid has no slope left, no gradient passes (section 0.3)."""
    if saturating:
        p = torch.sigmoid(logits.detach().float())
        logits = torch.where(p * (1 - p) < 1e-12, logits.detach(), logits)
    return binary_cross_entropy_with_logits(logits, labels)


class Oracle(Protocol):
    """A whole federation, one client at a time."""

    shared: Tensors
    """The server's tensors."""

    def train(self, cohort: list[int], devices: Devices, round: int) -> None:
        """One round."""

    def private(self, client: int) -> Tensors:
        """What a device holds, item tables as they are: [n, d]."""

    def scores(self, client: int) -> Tensor:
        """Scores of all items."""


def assert_close(found: Tensor, wanted: Tensor, what: str) -> None:
    """Equal to 1e-10 of the largest entry."""
    assert found.shape == wanted.shape, what
    assert torch.isfinite(wanted).all(), f"{what}: the oracle itself left the numbers"
    gap, scale = float((found - wanted).abs().max()), max(float(wanted.abs().max()), 1e-30)
    assert gap <= TOLERANCE * scale, f"{what}: {gap / scale:.1e}"


def compare(method: Method, engines: list[LocalEngine], server: Server, oracle: Oracle) -> None:
    """Run both for some rounds; server, private state and scores of every client must agree after each.

    Args:
        method: of which not all clients take part in so few rounds.
        engines: the same federation, in several ways of batching.
        server: before round 0.
        oracle: from the same start.
    """
    asleep = set(engines[0].population().tolist())
    servers = [Server(copy(server.shared), copy(server.kept)) for _ in engines]
    for t in range(ROUNDS):
        cohort = method.cohort(server, engines[0].population(), t, engines[0].draws)
        asleep -= set(cohort.tolist())
        oracle.train(cohort.tolist(), Devices(engines[0].federation, engines[0].draws), t)
        for number, engine in enumerate(engines):
            inbox = engine.train(servers[number], cohort, t).inbox
            servers[number] = method.server_update(servers[number], inbox, t, engine.draws)
            _compare_now(method, engine, servers[number], oracle, f"engine {number}, round {t}")
    assert asleep, "some clients should never take part"


def _compare_now(method: Method, engine: LocalEngine, server: Server, oracle: Oracle, when: str) -> None:
    for name, wanted in oracle.shared.items():
        assert_close(server.shared[name], wanted, f"{when}: {name} of the server")
    population = engine.population()
    private = engine.store.read(population)
    found = {**private.tensors, **{name: table.dense() for name, table in private.tables.items()}}
    down = method.broadcast(server, population)
    catalogue = torch.arange(engine.federation.n_items).expand(len(population), -1)
    scores = method.score(private, down, engine.federation.history(population), catalogue)
    for client in population.tolist():
        for name, wanted in oracle.private(client).items():
            assert_close(found[name][client], wanted, f"{when}: {name} of client {client}")
        assert_close(scores[client], oracle.scores(client), f"{when}: scores of client {client}")
