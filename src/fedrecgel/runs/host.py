"""Where the clients of a run live: in this process, or wherever an engine of another kind has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from fedrecgel.channels.base import Channel, DeviceHalf
from fedrecgel.data.federation import Federation
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.base import Engine
from fedrecgel.engine.local import LocalEngine
from fedrecgel.engine.store import ClientStore
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Problem
from fedrecgel.runs.config import Config
from fedrecgel.tables import State


@runtime_checkable
class Store(Protocol):
    """The clients' private state, or what stands for it where it is elsewhere."""

    def everyone(self) -> State:
        """All of it, as of now."""

    def load(self, state: State, *, give: bool = False) -> None:
        """Go back to what `everyone` returned earlier; with `give` its tensors are the store's from then on."""


class Host(NamedTuple):
    """Where clients live, and where their private state is."""

    engine: Engine
    store: Store
    devices: DeviceHalf
    """Seals the server's first state, and opens what is written to files: in a simulator, with the devices' keys."""


Hosting = Callable[[Config, Method, Channel, Problem, Split], Host]
"""Finds a host for the clients of a run."""


def simulated(config: Config, method: Method, channel: Channel, problem: Problem, split: Split) -> Host:
    """All clients in this process."""
    draws = Draws(config.run.seed)
    federation = Federation(split, config.sampling, problem.dtype, problem.device)
    store = ClientStore(method, problem, draws)
    engine = LocalEngine(method, federation, channel, store, draws, config.local, config.gate)
    return Host(engine, store, engine.devices)
