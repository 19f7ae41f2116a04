"""What a node keeps secret between two letters of a round, each answered by a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock

from fedrecgel.errors import PolicyError
from fedrecgel.storage import read_json, remove, write_atomically

FILE = "exchange.json"


@dataclass(frozen=True)
class State:
    """How far a node has come with a round, and what only it knows."""

    stage: str
    """The letter it answered last."""
    about: str
    """Run, round and purpose."""
    participant: int
    secret: str
    asked: str = ""
    """A hash of the clients it was asked for: later letters cannot change them either."""
    messages: Mapping[int, str] = field(default_factory=dict)
    """What others published: later letters cannot change it."""
    clients: Mapping[int, int] = field(default_factory=dict)
    """How many clients each of them speaks for."""
    signers: Mapping[int, str] = field(default_factory=dict)
    """By whose key each of them signs; empty in a simulation."""
    sharers: tuple[int, ...] = ()
    """Who sent shares."""
    arrived: tuple[int, ...] = ()
    """Whose uploads this node said are in the sum."""
    least: int = 0
    """Clients that hide each other in a sum of what this node received, as the method states."""


def keep(folder: Path, state: State) -> None:
    """Put what is secret on the node's disk, in place of anything earlier."""

    def write(temporary: Path) -> None:
        temporary.touch(0o600)
        temporary.write_text(json.dumps(asdict(state)), encoding="utf-8")

    write_atomically(folder / FILE, write)


def take(folder: Path, stage: str, about: str, participant: int) -> State:
    """What an earlier letter left, once: a second answer to the same could undo the first.

    Args:
        folder: of the run.
        stage: the letter that must have come before this one.
        about: run, round and purpose.
        participant: this node's number in it.

    Raises:
        PolicyError: that letter did not come, or what it left is used.
    """
    place, kept = folder / FILE, None
    if place.exists():
        with FileLock(folder / f".{FILE}.lock"):  # of two letters that come at once, one finds it
            try:
                kept = read_json(place, State) if place.exists() else None
            finally:
                remove(place)  # for good, before anything is done with it
    if kept is None or (kept.stage, kept.about, kept.participant) != (stage, about, participant):
        raise PolicyError(f"A letter of this kind should follow '{stage}', for the same sum. It does not: {about}.")
    return kept
