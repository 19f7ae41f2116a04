"""Files: written atomically, tensors with checksums and no pickles, text by schema, folders kept to one process."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.tensors import Tensors, release

FAMILY = "fedrecgel-"
FORMAT = f"{FAMILY}2"
EARLIER = f"{FAMILY}1"
"""Files without a checksum, whose header held the whole description."""
ABOUT = f"{FORMAT}:about"
"""The tensor that holds the description, as JSON: a million user names do not fit into a header."""
HEADER_BYTES = 1 << 20
"""Longest header that is parsed: this package writes some hundred tensors, and half a million would take minutes."""
TEXT_BYTES = 1 << 28
"""Longest text file that is read."""
TEMPORARY = ".tmp"
PART = 1 << 25
"""Bytes of a tensor that are hashed and written at a time."""
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""As safetensors calls them."""
UNREADABLE = (OSError, ValueError, RecursionError, msgspec.MsgspecError)
"""What reading a damaged text file ends in."""
T = TypeVar("T")


@dataclass(frozen=True)
class Mark:
    """What the header of a tensor file says about it."""

    run: str
    """The run, or the data, it belongs to."""
    sha256: str
    """Of this run and of names, types, shapes and bytes of all tensors, the description among them."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write(temporary path)` make the file, then move it into place: readers see the old file or the new one.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file is untouched.
    """
    # A folder, because writers make temporary files of their own; its name is fixed, so the next try removes it.
    room = path.with_name(f".{path.name}{TEMPORARY}")
    temporary = room / path.name
    try:
        make_folder(path.parent)
        _clear(room)
        room.mkdir()
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


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; a power cut takes none of them away again."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def remove(path: Path) -> None:
    """Delete a file, if it is there, for good: a power cut does not bring it back."""
    if path.exists():
        path.unlink(missing_ok=True)
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """What was made, renamed or deleted in a folder is safe from a power cut only once the folder is on disk."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_tensors(path: Path, tensors: Tensors, about: Mapping[str, Any], run: str) -> str:
    """Tensors and a description in one safetensors file (no pickle: loading runs no code); returns its checksum.

    In one pass, in which what lives in a file gives its pages back: private state may be larger than memory.
    """
    described = torch.frombuffer(bytearray(msgspec.json.encode(about)), dtype=torch.uint8)
    content = {name: value.detach().cpu().contiguous() for name, value in {**tensors, ABOUT: described}.items()}
    found = ""

    def write(temporary: Path) -> None:
        nonlocal found
        found = _write_safetensors(temporary, content, run)

    write_atomically(path, write)
    return found


def _write_safetensors(path: Path, content: Tensors, run: str) -> str:
    """The file and its checksum, which takes the place of an equally long one in the header when all is written."""
    order = sorted(content, key=lambda name: (-content[name].element_size(), name))  # so every tensor is aligned
    ends = list(accumulate((content[name].nbytes for name in order), initial=0))
    places = dict(zip(order, pairwise(ends), strict=True))
    unknown = Mark(run, "0" * 64)

    def header(mark: Mark) -> bytes:
        metadata = {FORMAT: msgspec.json.encode(mark).decode()}
        entries = {
            name: {"dtype": DTYPES[content[name].dtype], "shape": [*content[name].shape], "data_offsets": places[name]}
            for name in order
        }
        text = msgspec.json.encode({"__metadata__": metadata, **entries})
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    start = len(header(unknown))
    with path.open("wb") as file, ThreadPoolExecutor(1) as writer:

        def put(place: int, part: memoryview) -> None:
            file.seek(place)
            file.write(part)

        def on_the_way(name: str, done: int, part: memoryview) -> None:
            """Hash and write at the same time; both leave the interpreter to others."""
            writing.append(writer.submit(put, start + places[name][0] + done, part))
            if len(writing) > 2:
                writing.pop(0).result()

        writing: list[Future[None]] = []
        digest = digest_of(content, run, on_the_way)
        writer.submit(put, 0, memoryview(header(Mark(run, digest))))
        for part in writing:
            part.result()
    return digest


def read_tensors(
    path: Path, about: type[T], *, run: str | None = None, sha256: str | None = None, unchecked: bool = False
) -> tuple[Tensors, T, str]:
    """What `write_tensors` wrote, to the bit: tensors, description, and the run it belongs to.

    Args:
        path: the file.
        about: schema of its description.
        run: the run it should belong to.
        sha256: the checksum it should have.
        unchecked: also take a file of an earlier version, which has none.

    Raises:
        StorageError: the file is missing or damaged.
        RunFolderError: it is no file of this package, or one of another run.
    """
    try:
        _check_header(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if not {FORMAT, EARLIER} & metadata.keys():
                later = next((key for key in metadata if key.startswith(FAMILY)), None)
                raise RunFolderError(
                    f"'{path}' should be a file of this package. Found another safetensors file."
                    if later is None
                    else f"'{path}' has format '{later}', of a later version of fedrecgel. Update fedrecgel to read it."
                )
            # Cloned into aligned memory: where a tensor lies in the file decides the last bits of products with it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if FORMAT not in metadata:
            if not unchecked:
                raise RunFolderError(
                    f"'{path}' was written by an earlier version, without a checksum, and cannot be continued. "
                    f"Start again in another folder."
                )
            return tensors, msgspec.json.decode(metadata[EARLIER], type=about), ""
        mark = msgspec.json.decode(metadata[FORMAT], type=Mark)
        if digest_of(tensors, mark.run) != mark.sha256:
            raise ValueError("its checksum is another, so it was damaged after it was written")
        described = tensors.pop(ABOUT).numpy().tobytes()
        found = tensors, msgspec.json.decode(described, type=about), mark.run
    except (*UNREADABLE, KeyError, SafetensorError) as error:
        raise StorageError(
            f"'{path}' should be a complete safetensors file. It cannot be read: {error}. "
            f"Restore it from a copy, or start again in another folder."
        ) from error
    if run not in (None, mark.run) or sha256 not in (None, mark.sha256):
        raise RunFolderError(f"'{path}' belongs to another run. Restore the file that was here from a copy.")
    return found


def digest_of(
    tensors: Tensors, run: str = "", watch: Callable[[str, int, memoryview], None] = lambda name, done, part: None
) -> str:
    """SHA-256 of a run's name and of names, types, shapes and bytes of tensors; `watch` sees the bytes in parts."""
    found = sha256(repr(run).encode())
    for name in sorted(tensors):
        value = tensors[name]
        found.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
        flat = value.reshape(-1)
        if flat.stride(0) != 1:  # as it may be where there is at most one number
            flat = flat.clone(memory_format=torch.contiguous_format)
        whole = flat.view(torch.uint8).numpy().data
        for done in range(0, len(whole), PART):
            part = whole[done : done + PART]
            watch(name, done, part)
            found.update(part)
            release(value)
    return found.hexdigest()


def _check_header(path: Path) -> None:
    """Refuse a long header before it is parsed."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no ordinary file")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > HEADER_BYTES:
        raise ValueError(f"its header should have at most {HEADER_BYTES:,} bytes, and has {length:,}")


def read_bytes(path: Path) -> bytes:
    """A text file before it is decoded.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no ordinary file, or longer than any this package writes.
    """
    if path.exists() and not path.is_file():
        raise ValueError("it is no ordinary file")
    with path.open("rb") as file:
        found = file.read(TEXT_BYTES + 1)
    if len(found) > TEXT_BYTES:
        raise ValueError(f"it has more than {TEXT_BYTES:,} bytes")
    return found


def read_json(path: Path, kind: type[T]) -> T:
    """A JSON file by its schema.

    Raises:
        StorageError: it is missing, damaged or something else.
    """
    try:
        return msgspec.convert(json.loads(read_bytes(path)), kind, str_keys=True)  # json, which reads the NaN it writes
    except UNREADABLE as error:
        raise StorageError(f"'{path}' cannot be read: {error}. Restore it from a copy, or make it again.") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, unchecked.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no TOML.
    """
    try:
        return tomllib.loads(read_bytes(path).decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


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
        make_folder(place.parent)
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
