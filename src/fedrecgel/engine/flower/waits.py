"""Where Flower waits longer than a round takes, and what it does instead."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

SHARE = 0.1
"""Of the time since something happened, how long is waited before the next look."""
SHORTEST_WAIT = 0.1
FETCH_SECONDS = 0.05
"""Before a part of a message that is announced and not there yet is asked for again; Flower's own is a second."""


class Eager:
    """In the place of `time` where Flower waits: shorter after something happened, at most as long as Flower would.

    So a node in a run answers soon, and one that nobody asks asks no more often than Flower's own.
    """

    def __init__(self) -> None:
        self._since = time.monotonic()

    def happened(self) -> None:
        """Something did."""
        self._since = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(min(seconds, max(SHORTEST_WAIT, SHARE * (time.monotonic() - self._since))))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def fetch_sooner() -> None:
    """Let Flower ask again for what is on its way after less than a second, and after twice that each further time."""
    fetch = import_module("flwr.supercore.inflatable.inflatable_utils").pull_objects
    if "initial_backoff" in (fetch.__kwdefaults__ or {}):  # else it is slower, and right
        fetch.__kwdefaults__["initial_backoff"] = FETCH_SECONDS
