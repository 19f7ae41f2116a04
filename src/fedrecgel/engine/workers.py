"""Threads that work on blocks of clients: one intra-op thread each, results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

A = TypeVar("A")
B = TypeVar("B")


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread here: many small operations gain nothing from more, and pay for waking them."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


class Workers:
    """Threads for functions that leave Python's lock most of the time."""

    def __init__(self, n: int = 0) -> None:
        self.n = n or available_cores()
        # One intra-op thread each, as `one_thread`; so sums keep one order, too.
        self._pool = ThreadPoolExecutor(self.n, initializer=torch.set_num_threads, initargs=(1,))

    def begin(self, function: Callable[[], B]) -> Callable[[], B]:
        """Start a function on another worker, if there is one; returns a function that waits for its result."""
        return self._pool.submit(function).result if self.n > 1 else function

    def in_order(self, function: Callable[[A], B], inputs: Iterable[A]) -> Iterator[B]:
        """Results in the order of the inputs; only a few wait, however slow the consumer is."""
        if self.n == 1:  # here, where the caller finds them in its cache
            yield from map(function, inputs)
            return
        waiting: deque[Future[B]] = deque()
        for value in inputs:
            waiting.append(self._pool.submit(function, value))
            if len(waiting) > 3 * self.n:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
