"""What one core can do at best: fused multiply-adds per second and memory bandwidth, measured."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from statistics import median

import torch

from fedrecgel.models.kernels.compiler import compile_cached

FMA_SOURCE = r"""
typedef float v16 __attribute__((vector_size(64)));
extern "C" float fma_loop(long n, float seed) {
  v16 acc[24], a = {}, b = {};
  for (int i = 0; i < 16; i++) a[i] = 1.0f + seed, b[i] = seed;
  for (int i = 0; i < 24; i++) acc[i] = a * (float)i;
  for (long k = 0; k < n; k++)
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++) acc[i] = acc[i] * a + b;
  v16 s = {};
  for (int i = 0; i < 24; i++) s += acc[i];
  return s[0];
}
"""
"""Independent chains, enough to hide the latency of every unit; the result depends on the seed: nothing is left out."""

FLOPS_PER_STEP = 2 * 16 * 24


def fma_gflops(repetitions: int = 5) -> float:
    """Peak of one core; without a compiler the best single-threaded matrix product stands in."""
    try:
        loop = ctypes.CDLL(str(compile_cached(FMA_SOURCE, {}))).fma_loop
    except (OSError, subprocess.SubprocessError):
        return _matmul_gflops(repetitions)
    loop.restype = ctypes.c_float
    steps = 3_000_000
    seconds = []
    for _ in range(repetitions):
        started = time.process_time()
        loop(ctypes.c_long(steps), ctypes.c_float(1e-9))
        seconds.append(time.process_time() - started)
    return steps * FLOPS_PER_STEP / min(seconds) / 1e9


def _matmul_gflops(repetitions: int) -> float:
    size = 1536
    a, b = torch.randn(size, size), torch.randn(size, size)
    seconds = []
    for _ in range(repetitions):
        started = time.process_time()
        a @ b
        seconds.append(time.process_time() - started)
    return 2 * size**3 / min(seconds) / 1e9


def bandwidth_gb_s(repetitions: int = 5) -> float:
    """Triad a = b + s c over arrays far larger than the caches, one thread."""
    size = 32_000_000
    a, b, c = torch.zeros(size), torch.ones(size), torch.ones(size)
    seconds = []
    for _ in range(repetitions):
        started = time.process_time()
        torch.add(b, c, alpha=0.5, out=a)
        seconds.append(time.process_time() - started)
    return 3 * 4 * size / median(seconds) / 1e9


def load_average() -> float:
    """Processes that want a core, over the last minute."""
    return os.getloadavg()[0]
