"""Compiled back ends of models, used only where an engine allows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import Tensor

from fedrecgel.models.kernels.compiler import usable

T = TypeVar("T")
_allowed: ContextVar[bool] = ContextVar("compiled kernels are allowed", default=False)


@contextmanager
def allow_kernels(allowed: bool) -> Iterator[None]:
    """Let models of this thread use their compiled back ends, or not, inside the block."""
    before = _allowed.set(allowed)
    try:
        yield
    finally:
        _allowed.reset(before)


def with_kernels(values: Iterator[T], allowed: bool) -> Iterator[T]:
    """The same values, each made inside `allow_kernels`; what the caller does between them is not."""
    while True:
        with allow_kernels(allowed):
            try:
                value = next(values)
            except StopIteration:
                return
        yield value


def kernels_allowed(like: Tensor) -> bool:
    """Whether a compiled back end may compute with tensors of this type, here and now."""
    return _allowed.get() and usable(like.dtype, like.device)
