"""Results as data: one compressed file of everything a report is made of, without models.

It is a plain tar.xz of an experiments' folder. Config, metrics of every round, summary and every user's ranks are in it
byte for byte, under the seals they were written with, so that anybody can make the tables and repeat their tests
without training.
"""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath

import msgspec

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.storage import write_atomically

SUFFIX = ".tar.xz"
LOG = "results.jsonl"
"""Lines of several archives are put behind each other."""
MACHINE = "environment.json"
"""Archives may come from several machines, or from one at several commits."""
TEXTS = frozenset({".json", ".jsonl", ".toml"})
RANKS = "ranks.safetensors"
"""The only tensors that are packed: models weigh too much, and private parts are nobody's business."""
MADE = frozenset({"tables", "figures", "pages", "checkpoint"})
"""Folders that a report or a run under way writes."""
LARGEST = 2_000_000_000
"""Bytes that archives may unpack to; forged ones may promise more than any disk has."""


def pack(root: Path, target: Path) -> int:
    """Write the results in a folder to one file; returns how many files are in it.

    Raises:
        RunFolderError: there are no results in the folder.
        StorageError: the file cannot be written.
    """
    if not target.name.endswith(SUFFIX):
        raise RunFolderError(f"Results are packed into a file *{SUFFIX}. Found '{target}'.")
    paths = list(_kept(root))
    if not any(path.name == "summary.json" for path in paths):
        raise RunFolderError(f"'{root}' should hold finished runs. Found none; make some with `fedrecgel experiment`.")

    def write(place: Path) -> None:
        with lzma.open(place, "wb", preset=9) as packed, tarfile.open(fileobj=packed, mode="w") as file:
            for path in paths:
                info = tarfile.TarInfo(path.relative_to(root).as_posix())  # no owner, no time: same results, same bytes
                info.size = path.stat().st_size
                with path.open("rb") as content:
                    file.addfile(info, content)

    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, write)
    return len(paths)


def _kept(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if _is_result(inside) and not MADE & set(inside.parts) and path.is_file() and not path.is_symlink():
            yield path


def _is_result(path: PurePath) -> bool:
    return path.suffix in TEXTS or path.name == RANKS


def archives(root: Path) -> list[Path]:
    """Packed results in a folder."""
    return sorted(root.glob(f"*{SUFFIX}"))


def unpack(packed: list[Path], folder: Path) -> None:
    """Put what was packed into a folder; several archives become one experiments' folder.

    Raises:
        StorageError: one is damaged, or holds what no archive of results does.
        RunFolderError: two hold different files of one name.
    """
    left = LARGEST
    for path in packed:
        try:
            with tarfile.open(path, "r:xz") as file:
                for member in file:
                    left -= member.size
                    if left < 0:
                        raise StorageError(f"'{path}' should unpack to at most {LARGEST:,} bytes. It has more.")
                    _place(file, member, folder, path)
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            raise StorageError(f"'{path}' should be packed results. It cannot be read: {error}.") from error


def _place(file: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, source: Path) -> None:
    name = PurePosixPath(member.name)
    content = file.extractfile(member) if member.isreg() else None
    if content is None or name.is_absolute() or ".." in name.parts or not _is_result(name):
        raise StorageError(f"'{source}' should be packed results. Found '{member.name}' in it, which is none.")
    text, target = content.read(), folder.joinpath(*name.parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    if name.as_posix() == LOG:
        with target.open("ab") as log:
            log.write(text)
    elif name.as_posix() == MACHINE and target.exists():
        target.write_text(_together(target.read_bytes(), text, source), encoding="utf-8")
    elif target.exists() and target.read_bytes() != text:
        raise RunFolderError(f"Packed results should agree. '{source}' has another '{member.name}' than one before it.")
    else:
        target.write_bytes(text)


def _together(first: bytes, second: bytes, source: Path) -> str:
    """What two descriptions of a machine say: every different value of a key."""
    try:
        one, other = (msgspec.json.decode(text, type=dict[str, str | int | None]) for text in (first, second))
    except msgspec.DecodeError as error:
        raise StorageError(f"'{source}' should be packed results. Its {MACHINE} cannot be read: {error}.") from error
    values = {key: dict.fromkeys(str(found[key]) for found in (one, other) if key in found) for key in one | other}
    return json.dumps({key: "; ".join(found) for key, found in values.items()}, indent=1) + "\n"
