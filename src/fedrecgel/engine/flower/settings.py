"""Settings of the section [flower]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0)]


@dataclass(frozen=True)
class FlowerSettings:
    """Where the nodes are, and how long the server waits for them."""

    superlink: str | None = None
    """HOST:PORT of a running SuperLink; without one, a simulation is started and ended on this machine."""
    certificate: str | None = None
    """The certificate authority of that SuperLink, a PEM file; without one the connection is not encrypted."""
    nodes: Annotated[int, Meta(ge=1)] = 3
    """Nodes to start in a simulation, or to wait for in a deployment."""
    wait_seconds: Seconds = 120.0
    """How long to wait for them before the first round."""
    round_seconds: Seconds = 600.0
    """Straggler budget: a round ends after this time with the answers that arrived."""
    min_answers: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """Share of a round's clients whose answers are needed; with fewer, those missing are asked again."""
    repeats: Annotated[int, Meta(ge=0)] = 2
    """How often they are asked again before the run fails."""
    hosts: str | None = None
    """A JSON file that says which key hosts which users; without one, the key that registers a user first keeps it."""
    lost_state: Literal["refuse", "restart"] = "refuse"
    """What to do with a node that lost what its users learnt in this run: leave it out, or let them start anew."""
