"""Bindings: which key hosts which users, remembered with the run.

The first node that registers a user keeps it: whoever claims it later under another key is refused. What an operator
writes (`flower.hosts`) has the form of what a run remembers, `{"hosts": {KEY: [[FIRST, LAST], ...]}}`, and decides.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import torch
from jaxtyping import Int
from torch import Tensor

from fedrecgel.errors import ConfigError, StorageError
from fedrecgel.storage import write_text
from fedrecgel.tensors import Ids

NOBODY = torch.zeros(0, dtype=torch.int64)
MOST_USERS = 1 << 27
"""In all ranges of a file together."""
MOST_WARNINGS = 50
"""A node that comes back again and again does not fill the summary."""

log = logging.getLogger("flwr")  # what this logger writes is kept with the run

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Ranges = list[tuple[Number, Number]]
"""Users from the first to the last, both included."""


class Remembered(msgspec.Struct, forbid_unknown_fields=True):
    """The file, by schema."""

    hosts: dict[str, Ranges]
    joined: dict[str, dict[str, Number]] = {}
    warnings: list[str] = []
    begun: tuple[str, Number, Ranges] | None = None


class Begun(NamedTuple):
    """The round that was begun last, and whom it could ask."""

    run: str
    """Its name on nodes."""
    round: int
    population: Ids


@dataclass
class Bindings:
    """Users by key, and since when each key takes part."""

    hosts: dict[str, Ids] = field(default_factory=dict)
    """Users, ascending, of every key that was ever taken in."""
    joined: dict[str, dict[str, int]] = field(default_factory=dict)
    """By the name of a run on nodes and by key: the first round with an answer that was taken."""
    warnings: list[str] = field(default_factory=list)
    """What the operator should know of the nodes, in sentences."""
    begun: Begun | None = None
    """A round that is repeated after a kill asks the same clients: nodes answer it for no others."""
    allowed: Mapping[str, Ids] | None = None
    """The operator's word, if there is one."""
    place: Path | None = None
    """The file; None until the run's folder is locked, and in a simulation, whose keys are new in every process."""
    _joining: bool = False
    _bound: tuple[Ids, Tensor] | None = None
    """All users of `hosts`, ascending, and the place of each one's key; made when it is needed."""

    def refusal(self, key: str, users: Ids) -> str | None:
        """Why this key may not host these users; None if it may."""
        if self.allowed is not None:
            if key not in self.allowed:
                return "flower.hosts does not name it"
            if beyond := int((~torch.isin(users, self.allowed[key])).sum()):
                return f"{beyond} of the {len(users)} users it claims are not its own by flower.hosts"
        if self._bound is None:
            everybody = torch.cat([NOBODY, *self.hosts.values()])
            sizes = torch.tensor([len(users) for users in self.hosts.values()], dtype=torch.int64)
            owners = torch.arange(len(self.hosts)).repeat_interleave(sizes)
            order = everybody.argsort()
            self._bound = everybody[order], owners[order]
        bound, owners = self._bound
        own = list(self.hosts).index(key) if key in self.hosts else -1
        at = torch.searchsorted(bound, users).clamp(max=max(0, len(bound) - 1))
        if len(bound) and (taken := int(((bound[at] == users) & (owners[at] != own)).sum())):
            return f"{taken} of the {len(users)} users it claims are bound to other keys"
        return None

    def bind(self, key: str, users: Ids) -> None:
        """From now on these users are this key's."""
        self._bound = None
        before = self.hosts.get(key, users)
        self.hosts[key] = torch.unique(torch.cat([before, users]))

    def begin(self, run: str, round: int, population: Int[Tensor, " m"]) -> Int[Tensor, " k"]:
        """Whom a round may ask: these, or those of the first time if it is repeated."""
        if self.begun is None or (self.begun.run, self.begun.round) != (run, round):
            self.begun = Begun(run, round, population)
            self.save()
        return self.begun.population

    def join(self, run: str, key: str, round: int, *, again: bool) -> None:
        """An answer of this key was taken in this round; `save_joined` makes it last. Again: it lost its state."""
        since = self.joined.setdefault(run, {})
        if again or round < since.get(key, round + 1):
            since[key] = round
            self._joining = True

    def save_joined(self) -> None:
        """Save if somebody joined since."""
        if self._joining:
            self.save()
            self._joining = False

    def warn(self, sentence: str) -> None:
        """Say it in the log and keep it for the summary, once."""
        if sentence not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            log.warning("%s", sentence)
            self.warnings.append(sentence)
            self.save()

    def save(self) -> None:
        """Put everything in the file, once there is one."""
        if self.place is not None:
            hosts = {key: _ranges(users) for key, users in self.hosts.items()}
            begun = None if self.begun is None else (*self.begun[:2], _ranges(self.begun.population))
            text = msgspec.json.encode(Remembered(hosts, self.joined, self.warnings, begun)).decode()
            write_text(self.place, text + "\n")

    def check(self, n_users: int) -> None:
        """What was remembered must be of this data.

        Raises:
            StorageError: it is not.
        """
        begun = [] if self.begun is None else [self.begun.population]
        if any(bool((users >= n_users).any()) for users in (*self.hosts.values(), *begun)):
            raise StorageError(
                f"What a run remembers of its nodes should be about its {n_users} users. Found others in "
                f"'{self.place or 'hosts.json'}'; restore it from a copy, or start again in another folder."
            )

    def obey(self, allowed: Mapping[str, Ids]) -> None:
        """Let the operator's word decide, also about what was bound before."""
        self.allowed, self._bound = allowed, None
        self.hosts = {key: users[torch.isin(users, allowed.get(key, NOBODY))] for key, users in self.hosts.items()}

    @classmethod
    def read(cls, place: Path) -> Bindings:
        """What `save` wrote; nothing if the run was killed before it was.

        Raises:
            StorageError: the file is damaged.
        """
        if not place.exists():
            return cls()
        try:
            found = msgspec.json.decode(place.read_bytes(), type=Remembered)
            hosts = {key: _users(ranges) for key, ranges in found.hosts.items()}
            begun = None if found.begun is None else Begun(*found.begun[:2], _users(found.begun[2]))
        except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
            raise StorageError(
                f"'{place}' should say which key hosts which users. It cannot be read: {error}. "
                f"Restore it from a copy, or start again in another folder."
            ) from error
        return cls(hosts, found.joined, found.warnings, begun)


def read_hosts(text: str) -> dict[str, Ids]:
    """The operator's word on who hosts whom.

    Raises:
        ConfigError: it is something else, or gives a user to two keys.
    """
    try:
        found = {
            key: _users(ranges) for key, ranges in msgspec.json.decode(text.encode(), type=Remembered).hosts.items()
        }
    except ValueError as error:
        raise ConfigError(
            f'flower.hosts should name a JSON file like {{"hosts": {{"SHA256:…": [[0, 99]]}}}}. '
            f"It cannot be read: {error}."
        ) from error
    everyone = torch.cat([NOBODY, *found.values()])
    if len(everyone) != len(torch.unique(everyone)):
        raise ConfigError("flower.hosts should give every user to one key. Found some with two.")
    return found


def _users(ranges: Iterable[tuple[int, int]]) -> Ids:
    listed = list(ranges)
    if any(last < first for first, last in listed) or sum(1 + last - first for first, last in listed) > MOST_USERS:
        raise ValueError("a range of users ends before it begins, or there are too many")
    parts = [torch.arange(first, last + 1) for first, last in listed]
    found: Tensor = torch.unique(torch.cat([NOBODY, *parts]))
    return found


def _ranges(users: Tensor) -> Ranges:
    """Neighbouring numbers, in ascending order, as ranges."""
    if not len(users):
        return []
    cut = (users.diff() > 1).nonzero()[:, 0]
    first, last = torch.cat([users[:1], users[cut + 1]]), torch.cat([users[cut], users[-1:]])
    return list(zip(first.tolist(), last.tolist(), strict=True))
