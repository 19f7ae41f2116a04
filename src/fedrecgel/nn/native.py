"""The native kernel behind `local.accelerate`: neumf.cpp, compiled on first use and cached; None where that fails.

It needs a C++17 compiler (`CXX`, else c++ or g++) at run time and nothing at install time.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pooch
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.nn.neumf import NeuMF
from fedrecgel.nn.optim import BETA1, BETA2, EPS
from fedrecgel.tensors import Summed, Tensors

FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-shared", "-fno-math-errno")
SOURCES = ("matrices.cpp", "neumf.cpp")
NETWORK = ("item_half", "w1_user", "w1_item", "b1", "w2", "b2", "w3", "b3", "out_gmf", "out_mlp", "out_bias")
"""Shared tensors in the order of the kernel's arguments."""
SUMMED = NETWORK[1:]
"""Their gradients come back as sums over clients."""
LANES = 16
"""All sizes must be multiples of the vector length."""


@dataclass(frozen=True)
class Gradients:
    """What one client update needs of the model."""

    loss: Float[Tensor, " C"]
    user: Float[Tensor, "C d"]
    """g_ur, Eq. 12."""
    dense: dict[str, Summed]
    """g_co of the network, Eq. 15, summed over clients: matrices of single clients are never kept."""
    rows: Tensors
    """g_co of the client's item rows, Eq. 15."""


class Kernel:
    """The compiled functions for a model of certain sizes."""

    def __init__(self, library: ctypes.CDLL, model: NeuMF) -> None:
        self._library, self._model = library, model

    def gradients(
        self,
        shared: Tensors,
        user: Float[Tensor, "C d"],
        rows: Int[Tensor, "C K"],
        lengths: Int[Tensor, " C"],
        labels: Float[Tensor, "C K"],
        weights: Float[Tensor, "C K"],
        rho_co: float,
        rho_ur: float,
    ) -> Gradients:
        """Both sharpness-aware gradients of C clients at (θ_co, θ_ur); radius 0 gives the plain gradient."""
        (clients, width), new = rows.shape, user.new_empty
        loss, h_user = new(clients), new(user.shape)
        row_gmf, row_mlp = (new(clients, width, size) for size in (self._model.gmf_dim, self._model.mlp_dim))
        sums = {name: user.new_zeros(shared[name].shape) for name in SUMMED}
        read = (lengths, rows, labels, weights, user, shared["item_gmf"], shared["item_mlp"], *_network(shared))
        written = (loss, h_user, row_gmf, row_mlp, *sums.values())
        self._call("neumf_gradients", (clients, width), read, (rho_co, rho_ur), written)
        dense = {name: Summed(value) for name, value in sums.items()}
        return Gradients(loss, h_user, dense, {"item_gmf": row_gmf, "item_mlp": row_mlp})

    def scores(self, shared: Tensors, user: Float[Tensor, "C d"], items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """Logits."""
        scores = user.new_empty(items.shape)
        network = [value for name, value in zip(NETWORK, _network(shared), strict=True) if name != "w1_item"]
        self._call("neumf_scores", items.shape, (items, user, shared["item_gmf"], *network), (), (scores,))
        return scores

    def item_half(self, shared: Tensors) -> Float[Tensor, "n h"]:
        """As `NeuMF.item_half`."""
        table = shared["item_mlp"]
        half = table.new_empty(len(table), self._model.hidden[0])
        self._call("neumf_item_half", (len(table),), (table, shared["w1_item"]), (), (half,))
        return half

    def server_adam(
        self, parameters: Tensors, gradients: Tensors, moments: Tensors, lr: float
    ) -> tuple[Tensors, Tensors]:
        """As `optim.server_adam`, in one pass over memory."""
        step = int(moments["step"]) + 1
        numbers = (1 - BETA1, BETA2, 1 - BETA2, EPS, lr / (1 - BETA1**step), (1 - BETA2**step) ** 0.5)
        new, kept = {}, {"step": moments["step"] + 1}
        for name, value in parameters.items():
            read = (value, gradients[name], moments[f"{name}.m"], moments[f"{name}.v"])
            written = tuple(value.new_empty(value.shape) for _ in range(3))
            self._call("adam", (value.numel(),), read, numbers, written)
            new[name], kept[f"{name}.m"], kept[f"{name}.v"] = written
        return new, kept

    def _call(
        self,
        name: str,
        sizes: Sequence[int],
        read: Sequence[Tensor],
        numbers: Sequence[float],
        written: Sequence[Tensor],
    ) -> None:
        """Call a function of neumf.cpp; the interpreter lock is released meanwhile."""
        inputs = [value.contiguous() for value in read]  # kept alive until the call returns
        getattr(self._library, name)(
            *map(ctypes.c_int, sizes),
            *(ctypes.c_void_p(value.data_ptr()) for value in inputs),
            *map(ctypes.c_float, numbers),
            *(ctypes.c_void_p(value.data_ptr()) for value in written),
        )


def _network(shared: Tensors) -> list[Tensor]:
    return [shared[name] for name in NETWORK]


@lru_cache
def kernel(model: NeuMF) -> Kernel | None:
    """The kernel for a model of these sizes; None if it has no such kernel or it cannot be built here."""
    sizes = (model.gmf_dim, model.mlp_dim, *model.hidden)
    if len(model.hidden) != 3 or any(size % LANES for size in sizes):
        return None
    try:
        return Kernel(ctypes.CDLL(str(_library(sizes))), model)
    except (OSError, subprocess.SubprocessError):
        return None


def _library(sizes: tuple[int, ...]) -> Path:
    """Path of the compiled kernel."""
    parts = [files("fedrecgel.nn").joinpath(name).read_text(encoding="utf-8") for name in SOURCES]
    return compile_cached("\n".join(parts), dict(zip(("G", "M", "H1", "H2", "H3"), sizes, strict=True)))


def compile_cached(source: str, macros: Mapping[str, int]) -> Path:
    """A shared library from C++; compiled once per source, compiler and machine.

    Raises:
        OSError: there is no compiler, or the cache cannot be written.
        subprocess.SubprocessError: it does not compile.
    """
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++"))), None)
    if compiler is None:
        raise FileNotFoundError("no C++ compiler")
    flags = [*FLAGS, *(f"-D{name}={value}" for name, value in macros.items())]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    key = sha256("\0".join((source, version, _processor(), *flags)).encode()).hexdigest()[:16]
    target = Path(pooch.os_cache("fedrecgel")) / "native" / f"{key}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / "built.so"
            command = [compiler, *flags, "-x", "c++", "-", "-o", str(built)]
            subprocess.run(command, input=source, capture_output=True, text=True, check=True, timeout=300)
            built.replace(target)  # atomic: another process may build the same
    return target


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model name"))}))
    except OSError:
        return platform.processor()


def usable(dtype: torch.dtype, device: torch.device) -> bool:
    """The kernel computes in float32 on the CPU."""
    return dtype == torch.float32 and device.type == "cpu"
