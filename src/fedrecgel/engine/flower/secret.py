"""The secret of a node: 32 random bytes in its state folder, from which its users' negatives, vectors and noise come.

It is made once and stays, so that a repeated round draws the same numbers.
"""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from secrets import token_bytes

from filelock import FileLock

from fedrecgel.errors import StorageError
from fedrecgel.storage import write_atomically

FILE = "secret"
SECRET_BYTES = 32


def own_secret(folder: Path, settings: str) -> bytes:
    """What a run draws from: the secret kept in a folder, which the first call makes, bound to the run's settings.

    Two runs of different settings share no draw, so nothing cancels when what they sent is subtracted; one that is
    repeated on the same nodes repeats its numbers. What is left, the same settings for other users, the ledger refuses.

    Args:
        folder: of the node's state.
        settings: fingerprint of all that shapes a round.

    Raises:
        StorageError: it cannot be written or read, is cut short, or others may read it.
    """
    place = folder / FILE
    try:
        if not place.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / f".{FILE}.lock"):  # two letters may arrive at once
                if not place.exists():
                    write_atomically(place, _write_new)
        secret, mode = place.read_bytes(), place.stat().st_mode & 0o777
    except OSError as error:
        raise StorageError(
            f"'{place}' could not be written or read: {error}. Let the node's account write to this folder."
        ) from error
    if len(secret) != SECRET_BYTES:
        raise StorageError(
            f"'{place}' should hold {SECRET_BYTES} bytes. Found {len(secret)}. Restore it from a copy, or delete it: "
            f"a new one is made, and runs that used the old one cannot be resumed to the same bits."
        )
    if os.name == "posix" and mode & 0o077:
        raise StorageError(f"'{place}' should be readable by its owner only. Found mode {mode:o}: use chmod 600.")
    return hmac.digest(secret, settings.encode(), "sha256")


def _write_new(temporary: Path) -> None:
    temporary.touch(0o600)
    temporary.write_bytes(token_bytes(SECRET_BYTES))
