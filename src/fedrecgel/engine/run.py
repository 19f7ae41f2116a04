"""Algorithm 1, server side: the whole training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fedrecgel.draws import Draws
from fedrecgel.engine.base import Engine, Trained
from fedrecgel.methods.base import Method, Server
from fedrecgel.tensors import Ids


class Round(NamedTuple):
    """A finished round."""

    number: int
    server: Server
    cohort: Ids
    trained: Trained


def run(
    method: Method,
    engine: Engine,
    server: Server,
    rounds: int,
    draws: Draws,
    start: int = 0,
    draw: Callable[[Ids, int], Ids | None] = lambda population, t: None,
) -> Iterator[Round]:
    """Yield after every round; logging, evaluation and checkpoints are the caller's loop.

    A channel may `draw` the cohort itself; else the method does.
    """
    for t in range(start, rounds):
        population = engine.population()
        drawn = draw(population, t)
        cohort = method.cohort(server, population, t, draws) if drawn is None else drawn
        trained = engine.train(server, cohort, t)
        server = method.server_update(server, trained.inbox, t, draws)
        yield Round(t, server, cohort, trained)
