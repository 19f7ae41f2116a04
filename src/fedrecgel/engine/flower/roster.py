"""Roster: which node hosts which clients, as the nodes say when they introduce themselves."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fedrecgel.engine.flower.settings import FlowerSettings
from fedrecgel.engine.flower.wire import Courier, Letter, Lost
from fedrecgel.errors import RunError
from fedrecgel.tensors import Ids

POLL_SECONDS = 0.5
HELLO_SECONDS = 60.0
"""How long a node may take to introduce itself."""


class Roster:
    """The nodes of a run. A client belongs to the first reachable node that hosts it."""

    def __init__(self, courier: Courier, settings: FlowerSettings) -> None:
        self._courier, self._settings = courier, settings
        self._hosts: dict[int, tuple[str, Ids]] = {}
        """What each node says of the data, and whom it hosts."""
        self._failed: dict[int, str] = {}
        self._data = ""

    @property
    def facts(self) -> dict[str, Any]:
        """What the nodes of this run say of the data."""
        return dict(json.loads(self._data))

    def gather(self) -> None:
        """Wait until as many nodes as the settings name agree on the data, and fix what it is.

        Raises:
            RunError: too few came in time.
        """
        deadline = time.monotonic() + self._settings.wait_seconds
        while True:
            self.refresh()
            said = Counter(data for data, _ in self._hosts.values())
            self._data, found = said.most_common(1)[0] if said else ("", 0)
            if found >= self._settings.nodes:
                return
            if time.monotonic() > deadline:
                others = len(self._hosts) - found
                reasons = [f"{others} host users of other data."] if others else []
                reasons += [f"Node {node}: {reason}" for node, reason in self._failed.items()]
                raise RunError(
                    f"A run needs flower.nodes = {self._settings.nodes} nodes. Found {found} after "
                    f"{self._settings.wait_seconds:g} s. {' '.join(reasons)} "
                    f"Start more with `fedrecgel node`, or ask for fewer."
                )
            time.sleep(POLL_SECONDS)

    def _members(self) -> Iterator[tuple[int, Ids]]:
        """Nodes of this run, those that left included."""
        for node, (data, users) in self._hosts.items():
            if data == self._data:
                yield node, users

    def population(self) -> Ids:
        """Everybody who lives on a node that was ever here: a node that left may come back."""
        return torch.tensor(sorted({user for _, users in self._members() for user in users.tolist()}))

    def refresh(self) -> set[int]:
        """Let nodes that came since introduce themselves; the nodes that can be reached now."""
        here = set(self._courier.nodes())
        new = sorted(here - self._hosts.keys() - self._failed.keys())
        if new:
            for node, answer in self._courier.exchange("hello", {node: Letter({}) for node in new}, HELLO_SECONDS):
                self._introduce(node, answer)
        return here

    def _introduce(self, node: int, answer: Letter | Lost) -> None:
        if isinstance(answer, Lost):
            return  # it is asked again
        users, facts = answer.tensors.get("users"), answer.about.get("facts")
        if isinstance(facts, dict) and users is not None and _are_clients(users, facts):
            self._hosts[node] = json.dumps(facts, sort_keys=True), users
        else:
            self._failed[node] = str(answer.about.get("error", "It does not say which users of which data it hosts."))

    def hosting(self, ids: Ids) -> dict[int, Tensor]:
        """These clients by the node that can be reached for them now; those nobody hosts now are left out."""
        here = self.refresh()
        found: dict[int, Tensor] = {}
        left = ids
        for node, users in self._members():
            if node in here:
                mine = torch.isin(left, users)
                if mine.any():
                    found[node], left = left[mine], left[~mine]
        return found


def _are_clients(users: Tensor, facts: dict[str, Any]) -> bool:
    n_users = facts.get("n_users")
    return (
        isinstance(n_users, int)
        and users.dim() == 1
        and users.dtype == torch.int64
        and len(users) == len(set(users.tolist())) > 0
        and bool(((users >= 0) & (users < n_users)).all())
    )
