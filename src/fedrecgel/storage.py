"""Files: written atomically, tensors without pickles, folders kept to one process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.tensors import Tensors

FORMAT = "fedrecgel-1"
TEMPORARY = ".tmp"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write(temporary path)` make the file, then move it into place: readers see the old file or the new one.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file is untouched.
    """
    # A folder, because writers make temporary files of their own; its name is fixed, so the next try removes it.
    room = path.with_name(f".{path.name}{TEMPORARY}")
    temporary = room / path.name
    try:
        _clear(room)
        room.mkdir(parents=True)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"'{path}' could not be written: {error}. What was there before is untouched; "
            f"make room or choose another place."
        ) from error
    finally:
        _clear(room)


def _clear(room: Path) -> None:
    """Remove what an earlier try left, a folder or a file; what cannot be removed shows when the folder is made."""
    shutil.rmtree(room, ignore_errors=True)
    with suppress(OSError):
        room.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A rename is safe from a power cut only once its folder is on disk."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_tensors(path: Path, tensors: Tensors, about: Mapping[str, Any]) -> None:
    """Tensors and a JSON description in one safetensors file (no pickle: loading runs no code)."""
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = {FORMAT: json.dumps(about)}  # one key: several would come out in random order
    write_atomically(path, lambda temporary: save_file(contiguous, temporary, metadata))


def read_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """What `write_tensors` wrote.

    Raises:
        StorageError: the file is missing or truncated.
        RunFolderError: it is no file of this package.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise RunFolderError(f"'{path}' should be a file of this package. Found another safetensors file.")
            # Cloned into aligned memory: where a tensor lies in the file decides the last bits of products with it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads(metadata[FORMAT])
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"'{path}' should be a complete safetensors file. It cannot be read: {error}. "
            f"Restore it from a copy, or start again in another folder."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


@contextmanager
def lock_folder(folder: Path, place: Path) -> Iterator[None]:
    """Keep other processes out of a folder by a lock file, which the system frees even when the process is killed.

    Raises:
        RunFolderError: another process holds it.
        StorageError: the file cannot be written.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place, timeout=0)
        lock.acquire()
    except Timeout as error:
        raise RunFolderError(f"Another process is writing to '{folder}'. Choose another --out.") from error
    except (OSError, NotImplementedError) as error:  # the latter from a file system that knows no locks
        raise StorageError(f"'{folder}' could not be written: {error}. Choose another --out.") from error
    try:
        yield
    finally:
        lock.release()
