"""A simulation: Flower's server app, node app and messages, with nodes that are threads of this process.

Flower's own are processes under Ray, which takes ten seconds to start and copies every message between them. It is not
needed here.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from types import ModuleType
from typing import Any

from fedrecgel.engine.flower.node import Work
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.processes import QUIET
from fedrecgel.engine.flower.wire import Courier
from fedrecgel.engine.workers import available_cores
from fedrecgel.errors import ConfigError

RAY = "flwr.server.superlink.fleet.vce.backend.raybackend"
"""Where Flower looks for what runs its nodes."""


class Threads:
    """What runs the nodes of a simulation, by the names that Flower calls."""

    def __init__(self, config: object) -> None:
        self.num_workers = available_cores()
        self._app: Any = None

    def build(self, app_of: Callable[[], Any]) -> None:
        """Take the app."""
        self._app = app_of()

    def is_worker_idle(self) -> bool:
        """Each worker asks when it is."""
        return True

    def process_message(self, message: Any, context: Any) -> tuple[Any, Any]:
        """Let a node answer."""
        return self._app(message, context), context

    def terminate(self) -> None:
        """Nothing was started."""


def simulate(
    serve: Callable[[Courier], None],
    work_of: Callable[[str], Work],
    policy_of: Callable[[str], Policy],
    shards: Path,
    n_nodes: int,
) -> None:
    """Run a server's side against nodes over these shards; whatever it raises is raised here.

    Args:
        serve: the server's side, with the way to the nodes.
        work_of: what a node makes of the settings in a letter.
        policy_of: for real nodes; those of a simulation have none.
        shards: the folder of the nodes' shards, which also takes Flower's log.
        n_nodes: how many there are.
    """
    with TemporaryDirectory(prefix="fedrecgel-") as home, _flower(Path(home), shards / "flower.log"):
        apps = import_module("fedrecgel.engine.flower.apps")  # imports flwr, which reads the environment
        over, raised = Event(), list[BaseException]()

        def main(courier: Courier, config: Mapping[str, Any]) -> None:
            try:
                serve(courier)
            except BaseException as error:  # not Flower's to log
                raised.append(error)

        try:
            import_module("flwr.simulation").run_simulation(
                apps.server_app(main, over.is_set), apps.client_app(work_of, policy_of, shards), n_nodes, "threads"
            )
        finally:
            over.set()  # a server that waits for answers waits no longer
        if raised:
            raise raised[0]


@contextmanager
def _flower(home: Path, place: Path) -> Iterator[None]:
    """Flower with its files in a folder of ours, its log in a file, without telemetry and without Ray."""
    kept = {name: os.environ.get(name) for name in (*QUIET, "FLWR_HOME")}
    os.environ.update({**QUIET, "FLWR_HOME": str(home)})
    try:
        import_module("flwr.supercore.logger")  # gives the logger its handlers
    except ImportError as error:
        raise ConfigError("The engine 'flower' needs Flower. Install it: pip install 'fedrecgel[flower]'.") from error
    logger, backend = logging.getLogger("flwr"), ModuleType(RAY)
    setattr(backend, "RayBackend", Threads)  # noqa: B010 - a module is built
    before, sys.modules[RAY] = sys.modules.get(RAY), backend
    handlers, logger.handlers = logger.handlers, [logging.FileHandler(place, encoding="utf-8")]
    try:
        yield
    finally:
        logger.handlers[0].close()
        logger.handlers = handlers
        sys.modules.pop(RAY) if before is None else sys.modules.update({RAY: before})
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
