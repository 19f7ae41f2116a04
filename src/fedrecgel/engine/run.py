"""Algorithm 1, server side: the whole training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fedrecgel.draws import Draws
from fedrecgel.engine.base import Engine, Trained
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Server
from fedrecgel.tensors import Ids

Rule = Callable[[Ids, int], Ids | None]
"""From the clients that can be drawn and the round to a channel's choice among them; None leaves it to the method."""


class Round(NamedTuple):
    """A finished round."""

    number: int
    server: Server
    cohort: Ids
    trained: Trained


def run(
    method: Method, engine: Engine, server: Server, rounds: int, draws: Draws, start: int = 0, draw: Rule | None = None
) -> Iterator[Round]:
    """Yield after every round; logging, evaluation and checkpoints are the caller's loop."""
    for t in range(start, rounds):
        drawn = draw(engine.population(), t) if draw else None
        cohort = method.cohort(server, engine.population(), t, draws) if drawn is None else drawn
        trained = engine.train(server, cohort, t)
        server = method.server_update(server, trained.inbox, t, draws)
        yield Round(t, server, cohort, trained)
