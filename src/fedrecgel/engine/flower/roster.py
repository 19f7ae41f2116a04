"""Roster: which node hosts which clients: what nodes say when they introduce themselves, as far as their keys allow."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from fedrecgel.engine.flower.bindings import Bindings
from fedrecgel.engine.flower.rests import Rests
from fedrecgel.engine.flower.settings import FlowerSettings
from fedrecgel.engine.flower.shard import WholeData
from fedrecgel.engine.flower.wire import Courier, Letter, Lost, shortened
from fedrecgel.errors import RunError
from fedrecgel.tensors import Ids

POLL_SECONDS = 0.5
HELLO_SECONDS = 60.0
"""How long a node may take to introduce itself."""
HELLO_BYTES = 64 << 20
"""The longest introduction: it holds the catalogue and the numbers of the users."""


@dataclass(frozen=True)
class Introduced:
    """What a node says of itself."""

    key: str
    data: str
    users: Ids


class Roster:
    """The nodes of a run. A client belongs to the key that registered it first."""

    def __init__(self, courier: Courier, settings: FlowerSettings, bindings: Bindings | None = None) -> None:
        self._courier, self._settings = courier, settings
        self.bindings = Bindings() if bindings is None else bindings
        self._said: dict[int, Introduced] = {}
        """By node, in the order of introduction."""
        self._failed: dict[int, str] = {}
        self._serving: dict[str, int] = {}
        """The node that speaks for each key: the last that introduced itself under it."""
        self._data = ""
        self._strangers: Rests[int] = Rests()
        self.rests: Rests[str] = Rests()
        """Which keys are left out of letters, because they were silent."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the nodes of this run say of the data."""
        return dict(json.loads(self._data))

    def gather(self) -> None:
        """Wait until as many nodes as the settings name agree on the data and on who hosts whom.

        Raises:
            RunError: too few came in time.
        """
        deadline = time.monotonic() + self._settings.wait_seconds
        while True:
            self._meet()
            said = Counter(one.data for one in self._said.values())
            self._data = said.most_common(1)[0][0] if said else ""
            refused = self._refused(list(self._said))
            found = {one.key for node, one in self._said.items() if node not in refused}
            if len(found) >= self._settings.nodes:
                self._take_in(list(self._said), refused)
                self.bindings.check(self.facts["n_users"])
                return
            if time.monotonic() > deadline:
                others = sum(count for data, count in said.items() if data != self._data)
                reasons = [f"{others} host users of other data."] if others else []
                failed = {node: reason for node, reason in refused.items() if self._said[node].data == self._data}
                reasons += [f"Node {node}: {reason}." for node, reason in (self._failed | failed).items()]
                raise RunError(
                    f"A run needs flower.nodes = {self._settings.nodes} nodes. Found {len(found)} after "
                    f"{self._settings.wait_seconds:g} s. {' '.join(reasons)} "
                    f"Start more with `fedrecgel node`, or ask for fewer."
                )
            time.sleep(POLL_SECONDS)

    def _refused(self, nodes: list[int]) -> dict[int, str]:
        """Which of these nodes are not taken in, and why; nobody decides between those who come together."""
        reasons = {}
        for node in nodes:
            one = self._said[node]
            if one.data != self._data:
                reasons[node] = f"{one.key} hosts users of other data"
            elif reason := self.bindings.refusal(one.key, one.users):
                reasons[node] = f"{one.key} is left out, because {reason}"
        left = [self._said[node] for node in nodes if node not in reasons]
        claims: dict[str, Ids] = {}
        for one in left:
            claims[one.key] = torch.unique(torch.cat([claims.get(one.key, one.users), one.users]))
        if len(claims) > 1:
            claimed, times = torch.unique(torch.cat(list(claims.values())), return_counts=True)
            contested = claimed[times > 1]
            for node in nodes:
                one = self._said[node]
                if node not in reasons and (shared := int(torch.isin(one.users, contested).sum())):
                    reasons[node] = (
                        f"{one.key} is left out, because {shared} of the {len(one.users)} users it claims are claimed "
                        f"by another key as well; name the right one in flower.hosts"
                    )
        return reasons

    def _take_in(self, nodes: list[int], refused: dict[int, str]) -> None:
        for node in nodes:
            if node in refused:
                self.bindings.warn(f"{refused[node][:1].upper()}{refused[node][1:]}.")
                self._failed[node] = refused[node]
                del self._said[node]
            else:
                one = self._said[node]
                self.bindings.bind(one.key, one.users)
                self._serving[one.key] = node
        self.bindings.save()

    def population(self) -> Ids:
        """Everybody who lives on a node that was ever taken in: a node that left may come back."""
        return torch.cat([torch.zeros(0, dtype=torch.int64), *self.bindings.hosts.values()]).sort().values

    def refresh(self) -> set[int]:
        """Let nodes that came since introduce themselves; the nodes that can be reached now."""
        here, new = self._meet()
        if new:
            self._take_in(new, self._refused(new))
        return here

    def _meet(self) -> tuple[set[int], list[int]]:
        """The nodes that can be reached now, and those of them that just introduced themselves."""
        keys = self._courier.nodes()
        new = sorted(keys.keys() - self._said.keys() - self._failed.keys())
        asked = [node for node in new if not self._strangers.resting(node)]
        for node in set(new) - set(asked):
            self._strangers.missed(node)
        if asked:
            hello = Letter({}, answer_bytes=HELLO_BYTES)
            for node, answer in self._courier.exchange("hello", dict.fromkeys(asked, hello), HELLO_SECONDS):
                if isinstance(answer, Lost):
                    self._strangers.silent(node)  # it is asked again
                else:
                    self._introduce(node, keys[node], answer)
        return set(keys), [node for node in asked if node in self._said]

    def _introduce(self, node: int, key: str, answer: Letter) -> None:
        try:
            users, facts = answer.tensors["users"], answer.about["facts"]
            n_users = msgspec.convert(facts, WholeData).n_users
            introduced = Introduced(key, json.dumps(facts, sort_keys=True), users.sort().values)
            good = _are_clients(users, n_users)
        except Exception:  # whatever a hostile introduction makes this raise concerns that node only
            good = False
        if good:
            self._said[node] = introduced
        else:
            said = answer.about.get("error", "it does not say which users of which data it hosts")
            self._failed[node] = shortened(said).removesuffix(".")

    def key_of(self, node: int) -> str:
        """Under which key a node introduced itself."""
        return self._said[node].key

    def hosting(self, ids: Ids) -> dict[int, Tensor]:
        """These clients by the node that can be reached for them now; those nobody hosts now are left out."""
        here = self.refresh()
        found: dict[int, Tensor] = {}
        for node in self._serving.values():
            if node in here:
                mine = torch.isin(ids, self._said[node].users)
                if mine.any():
                    found[node] = ids[mine]
        return found


def _are_clients(users: Tensor, n_users: int) -> bool:
    return (
        users.dim() == 1
        and users.dtype == torch.int64
        and len(users) == len(torch.unique(users)) > 0
        and bool(((users >= 0) & (users < n_users)).all())
    )
