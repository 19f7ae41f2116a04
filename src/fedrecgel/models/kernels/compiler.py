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
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pooch
import torch
from torch import Tensor

from fedrecgel.models.kernels.signature import signatures_of

FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-shared", "-fno-math-errno")
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


@cache
def library(source: str, **sizes: int) -> Library | None:
    """The functions of matrices.cpp and another file beside it, for tensors of these sizes; None where that fails."""
    if any(size % LANES for size in sizes.values()):
        return None
    parts = [
        files("fedrecgel.models.kernels").joinpath(name).read_text(encoding="utf-8")
        for name in ("matrices.cpp", source)
    ]
    whole = "\n".join(parts)
    try:
        return Library(compile_cached(whole, sizes), whole, sizes)
    except (OSError, subprocess.SubprocessError):
        return None


def compiler() -> str | None:
    """Where the C++ compiler is, if there is one."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++"))), None)


def compile_cached(source: str, macros: Mapping[str, int]) -> Path:
    """A shared library from C++; compiled once per source, compiler and machine.

    Raises:
        OSError: there is no compiler, the cache cannot be written, or others can write it.
        subprocess.SubprocessError: it does not compile.
    """
    command = compiler()
    if command is None:
        raise FileNotFoundError("no C++ compiler")
    flags = [*FLAGS, *(f"-D{name}={value}" for name, value in macros.items())]
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    key = sha256("\0".join((source, version, _processor(), *flags)).encode()).hexdigest()[:16]
    target = Path(pooch.os_cache("fedrecgel")) / "native" / f"{key}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / "built.so"
            words = [command, *flags, "-x", "c++", "-", "-o", str(built)]
            subprocess.run(words, input=source, capture_output=True, text=True, check=True, timeout=300)
            built.chmod(0o600)
            built.replace(target)  # atomic: another process may build the same
    check_only_ours(target)
    return target


def check_only_ours(path: Path) -> None:
    """Refuse a file that somebody else could have written, in a folder where they could have put it.

    Raises:
        PermissionError: they could.
    """
    if os.name != "posix":
        return
    for place in (path, path.parent):
        facts = place.stat(follow_symlinks=False)
        if facts.st_uid not in (0, os.geteuid()):
            raise PermissionError(
                f"'{place}' should belong to this user or to root. It belongs to user {facts.st_uid}."
            )
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"'{place}' should be writable by its owner only. Found mode {facts.st_mode & 0o777:o}."
            )


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
