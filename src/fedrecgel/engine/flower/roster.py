"""Roster: which node hosts which clients, as the nodes say when they introduce themselves."""

from __future__ import annotations

import time
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
        self._users: dict[int, Ids] = {}
        self._facts: dict[str, Any] = {}
        self._turned_away: dict[int, str] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """What all nodes say of the data."""
        return self._facts

    def gather(self) -> None:
        """Wait for as many nodes as the settings name, and fix who takes part.

        Raises:
            RunError: too few came in time, or none that hosts anybody.
        """
        deadline = time.monotonic() + self._settings.wait_seconds
        while True:
            self.refresh()
            if len(self._users) >= self._settings.nodes:
                return
            if time.monotonic() > deadline:
                reasons = "".join(f" Node {node}: {reason}" for node, reason in self._turned_away.items())
                raise RunError(
                    f"A run needs flower.nodes = {self._settings.nodes} nodes. Found {len(self._users)} after "
                    f"{self._settings.wait_seconds:g} s.{reasons} Start more with `fedrecgel node`, or ask for fewer."
                )
            time.sleep(POLL_SECONDS)

    def population(self) -> Ids:
        """Everybody who lives on a node that was ever here: a node that left may come back."""
        return torch.tensor(sorted({user for users in self._users.values() for user in users.tolist()}))

    def refresh(self) -> set[int]:
        """Let nodes that came since introduce themselves; the nodes that can be reached now."""
        here = set(self._courier.nodes())
        new = sorted(here - self._users.keys() - self._turned_away.keys())
        if new:
            letters = {node: Letter({}) for node in new}
            for node, answer in self._courier.exchange("hello", letters, HELLO_SECONDS):
                self._introduce(node, answer)
        return here

    def _introduce(self, node: int, answer: Letter | Lost) -> None:
        if isinstance(answer, Lost):
            return  # it is asked again
        users, facts, error = answer.tensors.get("users"), answer.about.get("facts"), answer.about.get("error")
        if error is not None:
            self._turned_away[node] = str(error)
        elif not isinstance(facts, dict) or not isinstance(users, Tensor) or not _are_clients(users, facts):
            self._turned_away[node] = "It does not say which users of which data it hosts."
        elif self._facts and facts != self._facts:
            self._turned_away[node] = "It hosts users of other data."
        else:
            self._facts = facts
            self._users[node] = users

    def hosting(self, ids: Ids) -> dict[int, Ids]:
        """These clients by the node that can be reached for them now; those nobody hosts now are left out."""
        here = self.refresh()
        found: dict[int, Ids] = {}
        left = ids
        for node, users in self._users.items():
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
