"""ranks.safetensors: every user's ranks in a finished run, so that two runs can be compared user by user.

Format 1 has one rank per user. Format 2, which says so, has any number, and `ptr`, where each user's begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedrecgel.data.split import Split
from fedrecgel.errors import RunFolderError
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.storage import read_tensors, write_tensors
from fedrecgel.tensors import Tensors

SEVERAL = 2
"""The format with several held-out items per user, and the latest."""
PTR = "ptr"


@dataclass(frozen=True)
class _About:
    test: str
    format: int = 1


class RankFile(NamedTuple):
    """The ranks of a run."""

    test: str
    """Fingerprint of who is tested on what: only runs that share it can be compared user by user."""
    against: dict[str, Ranks]
    """Ranks among the "candidates" and, if asked for, the whole "catalogue"; empty where nodes hid them."""


def test_fingerprint(split: Split) -> str:
    """SHA-256 of users, held-out items and candidates; training rows may differ, as they do with a validation item."""
    digest = sha256(repr(split.interactions.user_ids).encode())
    for array in (split.test, split.candidates, *([split.test_ptr] if split.test_ptr is not None else [])):
        digest.update(np.ascontiguousarray(array).reshape(-1).data)
    return digest.hexdigest()


def write_ranks(path: Path, found: RankFile, run: str) -> str:
    """Write the ranks of a run; returns the checksum."""
    tensors = {f"{name}/above": ranks.above for name, ranks in found.against.items()}
    tensors |= {f"{name}/tied": ranks.tied for name, ranks in found.against.items()}
    pointers = [ranks.ptr for ranks in found.against.values() if ranks.ptr is not None]
    if not pointers:
        return write_tensors(path, tensors, {"test": found.test}, run)
    return write_tensors(path, {**tensors, PTR: pointers[0]}, {"test": found.test, "format": SEVERAL}, run)


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
    if about.format > SEVERAL:
        raise RunFolderError(f"'{path}' has format {about.format}, of a later version. This one reads up to {SEVERAL}.")
    ptr = tensors.pop(PTR, None)
    names = {key.partition("/")[0] for key in tensors}
    whole = {f"{name}/{part}" for name in names for part in ("above", "tied")} == set(tensors)
    whole &= "candidates" in names or not names  # nodes may have hidden them
    if not whole or (ptr is not None) != (about.format == SEVERAL) or not _fits(ptr, tensors):
        raise RunFolderError(f"'{path}' should hold the ranks of a run. Found something else.")
    found = {name: Ranks(tensors[f"{name}/above"], tensors[f"{name}/tied"], ptr) for name in names}
    return RankFile(about.test, found)


def _fits(ptr: Tensor | None, tensors: Tensors) -> bool:
    """Whether every user has ranks, and every rank a user."""
    if ptr is None:
        return True
    sizes = {len(values) for values in tensors.values()}
    return (
        ptr.ndim == 1 and len(ptr) > 1 and int(ptr[0]) == 0 and sizes == {int(ptr[-1])} and bool((ptr.diff() > 0).all())
    )
