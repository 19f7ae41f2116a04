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
from tempfile import TemporaryDirectory

import msgspec

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.storage import write_atomically

SUFFIX = ".tar.xz"
LOG = "results.jsonl"
"""Lines of several archives are put behind each other."""
MACHINE = "environment.json"
"""Archives may come from several machines, or from one at several commits."""
DATA = "data"
"""Folder of what is known about data sets."""
DOCUMENTS = "documents"
"""Folder of reduced experiments, where they are of several archives."""
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
    """Packed results in a folder, or the one that this file is."""
    return [root] if root.is_file() and root.name.endswith(SUFFIX) else sorted(root.glob(f"*{SUFFIX}"))


def unpack(packed: list[Path], folder: Path) -> None:
    """Put what was packed into a folder; several archives become one experiments' folder.

    What each says of its data sets stays apart, in `data/<archive>/`: facts belong to a split, and experiments may
    split one data set differently. So do reduced experiments, in `documents/<archive>/`: two may ask the same question
    of different data sets.

    Raises:
        StorageError: one is damaged, or holds what no archive of results does.
        RunFolderError: two hold different files of one name, so that a table would be of either.
    """
    left = LARGEST
    folder.mkdir(parents=True, exist_ok=True)
    for path in packed:
        with TemporaryDirectory(dir=folder) as place:
            left = _extract(path, Path(place), left)
            _merge(Path(place), folder, path, apart=len(packed) > 1)


def _extract(packed: Path, folder: Path, left: int) -> int:
    """Write the files of one archive; returns how many bytes the next may have."""
    try:
        with tarfile.open(packed, "r:xz") as file:
            for member in file:
                left -= member.size
                if left < 0:
                    raise StorageError(f"'{packed}' should unpack to at most {LARGEST:,} bytes. It has more.")
                name = PurePosixPath(member.name)
                content = file.extractfile(member) if member.isreg() else None
                if content is None or name.is_absolute() or ".." in name.parts or not _is_result(name):
                    raise StorageError(
                        f"'{packed}' should be packed results. Found '{member.name}' in it, which is none."
                    )
                target = folder.joinpath(*name.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise StorageError(f"'{packed}' should be packed results. It cannot be read: {error}.") from error
    return left


def _merge(new: Path, folder: Path, source: Path, *, apart: bool) -> None:
    """Move the files of an archive to those of archives before it."""
    for path in sorted(path for path in new.rglob("*") if path.is_file()):
        inside = path.relative_to(new)
        target = folder / (_own_place(inside, source.name.removesuffix(SUFFIX)) if apart else inside)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        elif inside == Path(LOG):
            with target.open("ab") as log:
                log.write(path.read_bytes())
        elif inside == Path(MACHINE):
            target.write_text(_together(target.read_bytes(), path.read_bytes(), source), encoding="utf-8")
        elif target.read_bytes() != path.read_bytes() and not _same_ranks(target.parent, path.parent):
            raise RunFolderError(
                f"Packed results should agree. '{source}' has another '{inside.as_posix()}' than one before it."
            )


def _own_place(inside: Path, archive: str) -> Path:
    """Where a file goes that every archive may have in its own way."""
    if inside.parts[0] == DATA:
        return Path(DATA, archive, *inside.parts[1:])
    if len(inside.parts) == 1 and inside.suffix == ".json" and inside.name != MACHINE:
        return Path(DOCUMENTS, archive, inside.name)
    return inside


def _same_ranks(first: Path, second: Path) -> bool:
    """Whether two folders hold one run, trained twice: seconds and commits may differ, what it reaches does not."""
    ranks = [folder / RANKS for folder in (first, second)]
    return all(path.exists() for path in ranks) and ranks[0].read_bytes() == ranks[1].read_bytes()


def _together(first: bytes, second: bytes, source: Path) -> str:
    """What two descriptions of a machine say: every different value of a key."""
    try:
        one, other = (msgspec.json.decode(text, type=dict[str, str | int | None]) for text in (first, second))
    except msgspec.DecodeError as error:
        raise StorageError(f"'{source}' should be packed results. Its {MACHINE} cannot be read: {error}.") from error
    values = {key: dict.fromkeys(str(found[key]) for found in (one, other) if key in found) for key in one | other}
    return json.dumps({key: "; ".join(found) for key, found in values.items()}, indent=1) + "\n"
