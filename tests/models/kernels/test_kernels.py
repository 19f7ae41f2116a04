"""Who may use compiled back ends, and when."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch

from fedrecgel.models.kernels import allow_kernels, kernels_allowed, with_kernels

SINGLE, DOUBLE = torch.zeros(1), torch.zeros(1, dtype=torch.float64)


def test_only_inside_the_block_in_this_thread_and_in_single_precision() -> None:
    assert not kernels_allowed(SINGLE)
    with allow_kernels(True):
        assert kernels_allowed(SINGLE)
        assert not kernels_allowed(DOUBLE)
        with ThreadPoolExecutor(1) as other:
            assert not other.submit(kernels_allowed, SINGLE).result()
        with allow_kernels(False):
            assert not kernels_allowed(SINGLE)
        assert kernels_allowed(SINGLE)
    assert not kernels_allowed(SINGLE)


def test_a_generator_may_use_them_and_its_caller_not() -> None:
    def values() -> Iterator[bool]:
        for _ in range(3):
            yield kernels_allowed(SINGLE)

    found = []
    for value in with_kernels(values(), True):
        found.append(value)
        assert not kernels_allowed(SINGLE)
    assert found == [True, True, True]
    assert list(with_kernels(values(), False)) == [False, False, False]
