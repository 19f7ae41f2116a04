"""A disk that loses power: what a program did to its files, and what may be left of it.

Operations are recorded as the program makes them. What a disk promises is little: the bytes of a file are safe once it
was synced, and a name that was made, changed or deleted is safe once its folder was synced. Everything else may be
there, or not, or for the bytes of a file in part.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Tree = dict[str, "Inode | None"]
"""What stands under each name: a file, or None for a folder."""
Left = dict[str, bytes | None]
"""The same with the bytes that are left."""


@dataclass(eq=False)
class Inode:
    """A file, whatever its name: what a reader sees, and what is on disk."""

    seen: bytes = b""
    on_disk: bytes = b""


@dataclass(frozen=True)
class Renaming:
    """A change of names in one or two folders: names that go and names that come."""

    folders: frozenset[str]
    gone: tuple[str, ...]
    come: tuple[tuple[str, Inode | None], ...]


@dataclass
class Disk:
    """The names as they are, as they surely are, and the changes between."""

    names: Tree = field(default_factory=dict)
    safe: Tree = field(default_factory=dict)
    waiting: list[Renaming] = field(default_factory=list)

    def change(self, *, gone: tuple[str, ...] = (), come: tuple[tuple[str, Inode | None], ...] = ()) -> None:
        """Names changed; they are safe once their folders are."""
        change = Renaming(frozenset(folder_of(name) for name in (*gone, *(n for n, _ in come))), gone, come)
        apply(self.names, change)
        self.waiting.append(change)

    def sync(self, folder: str) -> None:
        """Every change in a folder is safe."""
        for change in [change for change in self.waiting if folder in change.folders]:
            apply(self.safe, change)
            self.waiting.remove(change)

    def after_power_loss(self) -> Iterator[Tree]:
        """Names that may be left: none, all, the first few, or all but one of the changes that were not safe."""
        n = len(self.waiting)
        chosen = {tuple(range(k)) for k in range(n + 1)} | {
            tuple(k for k in range(n) if k != left) for left in range(n)
        }
        for numbers in sorted(chosen):
            names = dict(self.safe)
            for number in numbers:
                apply(names, self.waiting[number])
            yield {name: inode for name, inode in names.items() if reachable(names, name)}


def folder_of(name: str) -> str:
    """The folder a name stands in; the uppermost has no name."""
    return name.rpartition("/")[0]


def apply(names: Tree, change: Renaming) -> None:
    """Make a change of names."""
    for name in change.gone:
        names.pop(name, None)
    names.update(change.come)


def reachable(names: Tree, name: str) -> bool:
    """Whether all folders above a name are there."""
    above = folder_of(name)
    return above == "" or (above in names and reachable(names, above))


TEARS: dict[str, Callable[[Inode], bytes]] = {
    "kept": lambda inode: inode.seen,
    "lost": lambda inode: inode.on_disk,
    "torn": lambda inode: inode.seen[: len(inode.seen) // 2] if inode.seen != inode.on_disk else inode.seen,
}
"""What is left of bytes that were not synced."""


def remains(disk: Disk) -> list[Left]:
    """Every different tree that losing power now may leave."""
    found: dict[frozenset[tuple[str, bytes | None]], Left] = {}
    for names in disk.after_power_loss():
        for tear in TEARS.values():
            tree = {name: None if inode is None else tear(inode) for name, inode in names.items()}
            found.setdefault(frozenset(tree.items()), tree)
    return list(found.values())


def lay_out(tree: Left, root: Path) -> None:
    """Put what is left on a real disk."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name in sorted(tree):
        content = tree[name]
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)


@contextmanager
def recorded(root: Path, moments: list[list[Left]]) -> Iterator[None]:
    """While a program works under `root`, add what losing power would leave before each operation and after the last.

    Bytes reach a file unseen, through any library; they are read before the next operation. What is there now is safe.
    """
    disk = Disk()
    for path in sorted(root.rglob("*")):
        content = None if path.is_dir() else path.read_bytes()
        disk.names[str(path.relative_to(root))] = None if content is None else Inode(content, content)
    disk.safe = dict(disk.names)
    real = {name: getattr(os, name) for name in ("mkdir", "replace", "unlink", "rmdir", "fsync")}

    def look() -> None:
        """Take over bytes that were written, and files that were made by opening them."""
        for path in root.rglob("*"):
            name = str(path.relative_to(root))
            if path.is_file():
                if disk.names.get(name) is None:
                    disk.change(come=((name, Inode()),))
                inode = disk.names[name]
                assert inode is not None
                inode.seen = path.read_bytes()
        here = {str(path.relative_to(root)) for path in root.rglob("*")}
        for name in [name for name in disk.names if name not in here]:  # renamed or deleted by another library
            disk.change(gone=(name,))
        moments.append(remains(disk))

    def inside(path: Any) -> str | None:
        place = Path(path).absolute()
        return str(place.relative_to(root)) if place.is_relative_to(root) and place != root else None

    def mkdir(path: Any, *args: Any) -> None:
        look()
        real["mkdir"](path, *args)
        if (name := inside(path)) is not None:
            disk.change(come=((name, None),))

    def rename(old: Any, new: Any) -> None:
        look()
        real["replace"](old, new)
        source, target = inside(old), inside(new)
        if source is not None and target is not None:
            disk.change(gone=(source,), come=((target, disk.names[source]),))

    def unlink(path: Any) -> None:
        look()
        real["unlink"](path)
        if (name := inside(path)) is not None:
            disk.change(gone=(name,))

    def rmdir(path: Any) -> None:
        look()
        real["rmdir"](path)
        if (name := inside(path)) is not None:
            disk.waiting = [change for change in disk.waiting if change.folders != {name}]
            disk.change(gone=(name,))

    def fsync(handle: int) -> None:
        look()
        real["fsync"](handle)
        place = Path(f"/proc/self/fd/{handle}").readlink()
        if place == root:
            disk.sync("")
        elif (name := inside(place)) is not None:
            inode = disk.names[name]
            if inode is None:
                disk.sync(name)
            else:
                inode.on_disk = inode.seen

    with pytest.MonkeyPatch.context() as patch:
        for fake in (mkdir, unlink, rmdir, fsync):
            patch.setattr(os, fake.__name__, fake)
        patch.setattr(os, "replace", rename)
        patch.setattr(shutil, "_use_fd_functions", False)  # so that a tree is removed by paths
        yield
        look()
