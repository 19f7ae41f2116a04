"""ClientStore: the private tensors of every client, contiguous; a client never seen starts from `init_clients`."""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap

import torch
from torch import Tensor

from fedrecgel.draws import Draws
from fedrecgel.methods.base import Method, Problem
from fedrecgel.tensors import Ids, Tensors

WAKE_BLOCK = 20_000
"""Clients initialised at once: drawing their vectors takes several times the memory they keep."""


class ClientStore:
    """A simulator's stand-in for all devices; the server side never reads it."""

    def __init__(self, method: Method, problem: Problem, draws: Draws) -> None:
        self._initial: Callable[[Ids], Tensors] = lambda ids: method.init_clients(problem, ids, draws)
        shapes = self._initial(torch.arange(1))
        self._tensors = {name: _zeros_like_rows(value, problem.n_clients) for name, value in shapes.items()}
        self._seen = torch.zeros(problem.n_clients, dtype=torch.bool)

    def read(self, ids: Ids) -> Tensors:
        """Copies of these clients' tensors."""
        self._wake(ids)
        return {name: value[ids] for name, value in self._tensors.items()}

    def write(self, ids: Ids, private: Tensors) -> None:
        """Keep what these clients learnt."""
        for name, value in private.items():
            self._tensors[name][ids] = value
        self._seen[ids] = True

    def _wake(self, ids: Ids) -> None:
        fresh = ids[~self._seen[ids]]
        if len(fresh):
            self.write(fresh, self._initial(fresh))

    def tensors(self) -> Tensors:
        """All clients' tensors, not copied."""
        for start in range(0, len(self._seen), WAKE_BLOCK):
            self._wake(torch.arange(start, min(start + WAKE_BLOCK, len(self._seen))))
        return self._tensors

    def load(self, tensors: Tensors) -> None:
        """Replace everything by what `tensors` returned earlier."""
        for name, value in self._tensors.items():
            value.copy_(tensors[name])
        self._seen.fill_(True)


def _zeros_like_rows(row: Tensor, n_rows: int) -> Tensor:
    """Zeros whose memory is taken page by page where it is written: most of a million clients may never be drawn."""
    n_bytes = n_rows * row.numel() * row.element_size()
    if row.device.type != "cpu" or n_bytes == 0:
        return row.new_zeros(n_rows, *row.shape[1:])
    return torch.frombuffer(mmap(-1, n_bytes), dtype=row.dtype).view(n_rows, *row.shape[1:])
