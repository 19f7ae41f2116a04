"""C++ behind `local.accelerate`: compiled on first use and cached.

It needs a C++17 compiler (`CXX`, else c++ or g++) at run time and nothing at install time.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

import pooch
import torch
from filelock import FileLock
from torch import Tensor

from fedrecgel.models.kernels.signature import signatures_of

FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-shared", "-fno-math-errno")
HASH, FAILED = ".sha256", ".failed"
"""Beside a library: what it must be; and in its place: why there is none."""
LANES = 16
"""All sizes must be multiples of the vector length."""


class Library:
    """Compiled functions on tensors."""

    def __init__(self, path: Path, source: str, macros: Mapping[str, int]) -> None:
        self._functions, self._macros = ctypes.CDLL(str(path)), macros
        self._signatures = signatures_of(source)

    def call(
        self,
        name: str,
        sizes: Sequence[int],
        read: Sequence[Tensor],
        numbers: Sequence[float],
        written: Sequence[Tensor],
    ) -> None:
        """Call a function; the interpreter lock is released meanwhile.

        Raises:
            TypeError: a tensor is not of the type that the function declares.
            ValueError: it has another shape, or one that is written is not contiguous.
        """
        inputs = [value.contiguous() for value in read]  # kept alive until the call returns
        self._signatures[name].check(sizes, numbers, (*inputs, *written), self._macros)
        getattr(self._functions, name)(
            *map(ctypes.c_int, sizes),
            *(ctypes.c_void_p(value.data_ptr()) for value in inputs),
            *map(ctypes.c_float, numbers),
            *(ctypes.c_void_p(value.data_ptr()) for value in written),
        )


class Recipe(NamedTuple):
    """What to compile: a file beside this one, with matrices.cpp before it, for tensors of certain sizes."""

    file: str
    sizes: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, file: str, **sizes: int) -> Recipe | None:
        """None where a size does not fit the vectors of the machine."""
        return None if any(size % LANES for size in sizes.values()) else cls(file, tuple(sizes.items()))

    @property
    def source(self) -> str:
        """All of it."""
        folder = files("fedrecgel.models.kernels")
        return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in ("matrices.cpp", self.file))


@cache
def library(recipe: Recipe | None) -> Library | None:
    """The functions of a recipe, compiled if need be; None where that fails."""
    if recipe is None:
        return None
    sizes = dict(recipe.sizes)
    try:
        return Library(compile_cached(recipe.source, sizes), recipe.source, sizes)
    except (OSError, subprocess.SubprocessError):
        return None


def state_of(recipe: Recipe) -> Literal["built", "failed", "new"]:
    """Whether it is compiled already, so that `library` takes no time, or was tried in vain."""
    try:
        target, _ = _target(recipe.source, dict(recipe.sizes))
        if _is_whole(target):
            return "built"
        return "failed" if target.with_suffix(FAILED).exists() else "new"
    except (OSError, subprocess.SubprocessError):
        return "failed"


def build_aside(recipe: Recipe) -> None:
    """Compile in a process of its own that gives way to everything else, for runs to come."""
    words = f"from {__name__} import Recipe, library; library(Recipe({recipe.file!r}, {recipe.sizes!r}))"
    subprocess.Popen(
        [sys.executable, "-c", f"import os; os.nice(19); {words}"],
        start_new_session=True,  # goes on when the run ends
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def compiler() -> str | None:
    """Where the C++ compiler is, if there is one."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++"))), None)


def gains() -> bool:
    """Whether this processor multiplies enough numbers at once for kernels to be faster than PyTorch; else unknown."""
    return bool({"avx2", "avx512f"} & set(_processor().split()))


def compile_cached(source: str, macros: Mapping[str, int]) -> Path:
    """A shared library from C++; compiled once per source, compiler and machine, by one process at a time.

    Raises:
        OSError: there is no compiler, the cache cannot be written, or others can write it.
        subprocess.SubprocessError: it does not compile.
    """
    target, words = _target(source, macros)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_only_ours(target.parent)
    target.parent.chmod(0o700)  # an earlier version let others read it
    with FileLock(target.with_suffix(".lock")):
        if not _is_whole(target):
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                built = Path(folder) / "built.so"
                words = [*words, "-x", "c++", "-", "-o", str(built)]
                try:
                    subprocess.run(words, input=source, capture_output=True, text=True, check=True, timeout=300)
                except subprocess.SubprocessError as error:
                    target.with_suffix(FAILED).write_text(str(getattr(error, "stderr", error)), encoding="utf-8")
                    raise
                built.chmod(0o600)
                hash_of = Path(folder) / "hash"
                hash_of.touch(0o600)
                hash_of.write_text(sha256(built.read_bytes()).hexdigest(), encoding="ascii")
                built.replace(target)
                hash_of.replace(target.with_suffix(HASH))
    check_only_ours(target)
    return target


def _target(source: str, macros: Mapping[str, int]) -> tuple[Path, list[str]]:
    """Where a library belongs, and the beginning of the command that makes it."""
    command = compiler()
    if command is None:
        raise FileNotFoundError("no C++ compiler")
    flags = [*FLAGS, *(f"-D{name}={value}" for name, value in macros.items())]
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    key = sha256("\0".join((source, version, _processor(), *flags)).encode()).hexdigest()[:16]
    return Path(pooch.os_cache("fedrecgel")) / "native" / f"{key}.so", [command, *flags]


def _is_whole(target: Path) -> bool:
    """Whether a library is there, ours alone, and the one that was built.

    Raises:
        PermissionError: somebody else could have put it there.
    """
    recorded = target.with_suffix(HASH)
    if not (target.exists() and recorded.exists()):
        return False
    for place in (target.parent, target, recorded):
        check_only_ours(place)
    return recorded.read_text(encoding="ascii", errors="replace") == sha256(target.read_bytes()).hexdigest()


def check_only_ours(place: Path) -> None:
    """Refuse a file or folder that somebody else could have written.

    Raises:
        PermissionError: they could.
    """
    if os.name != "posix":
        return
    facts = place.stat(follow_symlinks=False)
    if facts.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"'{place}' should belong to this user or to root. It belongs to user {facts.st_uid}.")
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"'{place}' should be writable by its owner only. Found mode {facts.st_mode & 0o777:o}.")


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model name"))}))
    except OSError:
        return platform.processor()


def padded_size(size: int) -> int:
    """The next multiple of the vector length."""
    return -(-size // LANES) * LANES


def usable(dtype: torch.dtype, device: torch.device) -> bool:
    """The kernel computes in float32 on the CPU."""
    return dtype == torch.float32 and device.type == "cpu"
