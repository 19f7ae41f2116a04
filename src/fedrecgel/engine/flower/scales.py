"""Scales: what an answer weighs, before Flower unpacks it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

PATIENCE_SECONDS = 20.0
"""How long an answer that was announced may take to arrive whole: nobody else is heard meanwhile."""


@dataclass
class _Account:
    """What was fetched of one message."""

    most_bytes: int
    begun: float = field(default_factory=time.monotonic)
    n_bytes: int = 0
    fetched: dict[str, bytes] = field(default_factory=dict)

    def check(self, n_bytes: int) -> None:
        if n_bytes > self.most_bytes:
            raise ValueError(f"it has {n_bytes} bytes or more and may have {self.most_bytes}")


class Scales:
    """Flower's client for its Runtime API, held to so many bytes of one message: it has no limit of its own.

    An array is a list of chunks, and one chunk may stand in it any number of times: 5 MiB that travel unfold to
    whatever the list says. So both what is fetched and what it would unfold to are weighed.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.begin(0)

    def begin(self, most_bytes: int) -> None:
        """Another message."""
        self._account = _Account(most_bytes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def PullObject(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        """One object of a message."""
        account = self._account  # a slow thread of the last message must not weigh on this one
        found = self._client.PullObject(request)
        if not found.object_available and time.monotonic() > account.begun + PATIENCE_SECONDS:
            raise ValueError(f"it was announced and did not arrive within {PATIENCE_SECONDS:g} s")
        account.fetched[request.object_id] = found.object_content
        account.n_bytes += len(found.object_content)
        account.check(account.n_bytes)
        return found

    def ConfirmMessageReceived(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        """The last call before a message is unpacked."""
        confirmed = self._client.ConfirmMessageReceived(request)
        account, n_bytes = self._account, 0
        for content in account.fetched.values():
            head, _, body = content.partition(b"\0")
            kind, children, _ = head.decode().split(" ")
            if kind == "Array":
                sizes = [len(account.fetched[child]) for child in children.split(",") if child]
                n_bytes += sum(sizes[index] for index in json.loads(body)["arraychunk_ids"])
        account.check(n_bytes)
        return confirmed
