"""What a node keeps secret between an exchange and the training that follows, each a process of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fedrecgel.errors import RunError
from fedrecgel.storage import read_json, remove, write_atomically

FILE = "exchange.json"


@dataclass(frozen=True)
class _Kept:
    round: int
    participant: int
    secret: str


def keep(folder: Path, round: int, participant: int, secret: bytes) -> None:
    """Put the secret of an exchange on the node's disk, in place of any earlier one."""
    text = json.dumps({"round": round, "participant": participant, "secret": secret.hex()})

    def write(temporary: Path) -> None:
        temporary.touch(0o600)
        temporary.write_text(text, encoding="utf-8")

    write_atomically(folder / FILE, write)


def take(folder: Path, round: int, participant: int) -> bytes:
    """The secret of the exchange before this training, once: a second upload under the same one could undo it.

    Raises:
        RunError: there was no such exchange, or its secret is used.
    """
    place = folder / FILE
    try:
        kept = read_json(place, _Kept) if place.exists() else None
    finally:
        remove(place)  # for good, before anything is covered with it
    if kept is None or (kept.round, kept.participant) != (round, participant):
        raise RunError(f"Round {round + 1} should begin with an exchange that includes this node. There was none.")
    return bytes.fromhex(kept.secret)
