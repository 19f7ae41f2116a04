"""The ledger: which letters a node has answered lately, on its own disk.

A server names its runs as it likes, so letters are counted over all of them. Letters count, not users: a letter about
one user costs as much as one about all. A letter that comes again, after a kill on either side, costs as much as the
first: where a method adds noise, a second answer tells more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time

import msgspec
import torch
from filelock import FileLock

from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.wire import Letter
from fedrecgel.errors import PolicyError, StorageError
from fedrecgel.storage import digest_of, write_text

FILE = "ledger.json"
DAY = 86_400.0
SUM = "sum of "
"""Begins the kind of an entry that says whose sum was opened."""


@dataclass(frozen=True)
class Entry:
    """A letter that was answered."""

    at: float
    """Seconds since 1970, by the node's clock."""
    kind: str
    """The key of the policy that limits it."""
    settings: str
    """Fingerprint of the run's settings: with them and the round, the node's draws are given."""
    round: int
    asked: str
    """A hash of the users it named and of what they were to download."""


def spend(folder: Path, policy: Policy, kind: str, letter: Letter, settings: str) -> None:
    """Note a letter on disk before it is answered.

    Args:
        folder: of the shard.
        policy: the node's.
        kind: of letter.
        letter: what is asked.
        settings: fingerprint of the run's settings.

    Raises:
        PolicyError: the budget of its kind is spent, or the same round was answered for other users.
        StorageError: the file cannot be read or written; then nothing is answered.
    """
    with FileLock(folder / f".{FILE}.lock"):
        _spend(folder / FILE, policy, _entry(kind, letter, settings))


def settle(folder: Path, policy: Policy, purpose: str, round: int, arrived: Sequence[int], settings: str) -> None:
    """Note whose sum was opened before this node helps to open it; later it opens the same again, and no other.

    Args:
        folder: of the shard.
        policy: the node's.
        purpose: what was summed.
        round: of the run.
        arrived: whose uploads are in the sum.
        settings: fingerprint of the run's settings.

    Raises:
        PolicyError: the sum over others was opened before, and one could be subtracted from the other.
        StorageError: the file cannot be read or written; then nothing is opened.
    """
    new = Entry(time(), f"{SUM}{purpose}", settings, round, digest_of({"arrived": torch.tensor(arrived)}))
    with FileLock(folder / f".{FILE}.lock"):
        known = _read(folder / FILE)
        for entry in known:
            same = (entry.kind, entry.settings, entry.round) == (new.kind, new.settings, new.round)
            if same and entry.asked != new.asked and policy.min_users > 1:
                raise PolicyError(
                    f"The sum of round {round + 1} of these settings was opened for other nodes, and one could be "
                    f"subtracted from the other. Start a run with another seed."
                )
        write_text(folder / FILE, json.dumps([asdict(entry) for entry in [*known, new]]))


def _entry(kind: str, letter: Letter, settings: str) -> Entry:
    budget = "rounds"
    if kind == "rank":
        budget = "full_rankings" if letter.about["against"] == "catalogue" else "rankings"
    # A round that is repeated may have fewer others in its cohort.
    asked = {name: value for name, value in letter.tensors.items() if name != "cohort"}
    return Entry(time(), budget, settings, int(letter.about["round"]), digest_of(asked))


def _spend(place: Path, policy: Policy, new: Entry) -> None:
    recent = new.at - policy.days * DAY
    # What was trained is never forgotten: the node's draws for it never change.
    lasting = ("rounds", SUM)
    known = [entry for entry in _read(place) if entry.at > recent or entry.kind.startswith(lasting)]
    alike = [entry for entry in known if entry.kind == new.kind]
    if new.kind == "rounds" and policy.min_users > 1:  # 1 hides nobody
        for entry in alike:
            if (entry.settings, entry.round) == (new.settings, new.round) and entry.asked != new.asked:
                raise PolicyError(
                    f"Round {new.round + 1} of these settings was answered for other users or another model, and their "
                    f"sums could be subtracted from each other. Start a run with another seed."
                )
    limit = getattr(policy, new.kind)
    if sum(entry.at > recent for entry in alike) >= limit:
        raise PolicyError(
            f"This node answers {limit} letters of this kind in {policy.days:g} days (policy.{new.kind}), and has. "
            f"Wait, or raise the limit in the file that --policy names."
        )
    write_text(place, json.dumps([asdict(entry) for entry in [*known, new]]))


def _read(place: Path) -> list[Entry]:
    if not place.exists():
        return []
    try:
        return msgspec.json.decode(place.read_bytes(), type=list[Entry])
    except (OSError, msgspec.DecodeError) as error:  # nothing is answered: an empty ledger would be a fresh budget
        raise StorageError(f"'{place}' should list the letters this node has answered: {error}. Restore it.") from error
