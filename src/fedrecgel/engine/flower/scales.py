"""Scales: what an answer weighs, before Flower unpacks it."""

from __future__ import annotations

import json
from typing import Any


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
        self._most_bytes, self._n_bytes = most_bytes, 0
        self._fetched: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def PullObject(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        """One object of a message."""
        found = self._client.PullObject(request)
        self._fetched[request.object_id] = found.object_content
        self._n_bytes += len(found.object_content)
        self._check(self._n_bytes)
        return found

    def ConfirmMessageReceived(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        """The last call before a message is unpacked."""
        confirmed = self._client.ConfirmMessageReceived(request)
        n_bytes = 0
        for content in self._fetched.values():
            head, _, body = content.partition(b"\0")
            kind, children, _ = head.decode().split(" ")
            if kind == "Array":
                sizes = [len(self._fetched[child]) for child in children.split(",") if child]
                n_bytes += sum(sizes[index] for index in json.loads(body)["arraychunk_ids"])
        self._check(n_bytes)
        return confirmed

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._most_bytes:
            raise ValueError(f"it has {n_bytes} bytes or more and may have {self._most_bytes}")
