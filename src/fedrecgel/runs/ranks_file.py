"""ranks.safetensors: every user's rank in a finished run, so that two runs can be compared user by user."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrecgel.data.split import Split
from fedrecgel.errors import RunFolderError
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.storage import read_tensors, write_tensors


@dataclass(frozen=True)
class _About:
    test: str


class RankFile(NamedTuple):
    """The ranks of a run."""

    test: str
    """Fingerprint of who is tested on what: only runs that share it can be compared user by user."""
    against: dict[str, Ranks]
    """Ranks among the "candidates" and, if asked for, the whole "catalogue"; empty where nodes hid them."""


def test_fingerprint(split: Split) -> str:
    """SHA-256 of users, held-out items and candidates; training rows may differ, as they do with a validation item."""
    digest = sha256(repr(split.interactions.user_ids).encode())
    for array in (split.test, split.candidates):
        digest.update(np.ascontiguousarray(array).reshape(-1).data)
    return digest.hexdigest()


def write_ranks(path: Path, found: RankFile, run: str) -> str:
    """Write the ranks of a run; returns the checksum."""
    tensors = {f"{name}/above": ranks.above for name, ranks in found.against.items()}
    tensors |= {f"{name}/tied": ranks.tied for name, ranks in found.against.items()}
    return write_tensors(path, tensors, {"test": found.test}, run)


def read_ranks(path: Path, *, run: str | None = None, sha256: str | None = None) -> RankFile:
    """The ranks of a finished run.

    Args:
        path: the file.
        run: fingerprint of the run.
        sha256: the checksum it should have.

    Raises:
        RunFolderError: the file is missing or something else.
    """
    if not path.exists():
        raise RunFolderError(f"'{path}' is missing: the run was made by an earlier version. Train it again.")
    tensors, about, _ = read_tensors(path, _About, run=run, sha256=sha256, unchecked=run is None)
    names = {key.partition("/")[0] for key in tensors}
    if (names and "candidates" not in names) or {
        f"{name}/{part}" for name in names for part in ("above", "tied")
    } != set(tensors):
        raise RunFolderError(f"'{path}' should hold the ranks of a run. Found something else.")
    return RankFile(about.test, {name: Ranks(tensors[f"{name}/above"], tensors[f"{name}/tied"]) for name in names})
