"""ClientStore: the private state of every client; a client never seen starts from `init_clients`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedrecgel.draws import Draws
from fedrecgel.methods.base import Method, Problem
from fedrecgel.tables import PersonalTable, State
from fedrecgel.tensors import Ids, lazy_zeros

WAKE_BLOCK = 20_000
"""Clients initialised at once: drawing their vectors takes several times the memory they keep."""


class ClientStore:
    """A simulator's stand-in for all devices; the server side never reads it.

    Tensors of all clients are contiguous, and item tables are kept as the rows each client changed. What all clients
    start with in common is kept once until a client has trained.
    """

    def __init__(self, method: Method, problem: Problem, draws: Draws) -> None:
        self._initial: Callable[[Ids], State] = lambda ids: method.init_clients(problem, ids, draws)
        first, self._n_clients = self._initial(torch.zeros(2, dtype=torch.int64)), problem.n_clients
        self._tensors = {
            name: lazy_zeros((problem.n_clients, *value.shape[1:]), value.dtype, value.device)
            for name, value in first.tensors.items()
        }
        self._common = {name: value[0] for name, value in first.tensors.items() if value.stride(0) == 0}
        self._tables = {name: table.singles()[:1] * problem.n_clients for name, table in first.tables.items()}
        self._awake = torch.zeros(problem.n_clients, dtype=torch.bool)
        """Clients whose own initial tensors were drawn."""
        self._trained = torch.zeros(problem.n_clients, dtype=torch.bool)

    def read(self, ids: Ids) -> State:
        """Copies of these clients' state."""
        self._wake(ids)
        trained = self._trained[ids]
        tensors = {}
        for name, value in self._tensors.items():
            if name in self._common and not trained.all():  # pages of the others were never written: do not touch them
                tensors[name] = self._common[name].repeat(len(ids), *[1] * (value.dim() - 1))
                tensors[name][trained] = value[ids[trained]]
            else:
                tensors[name] = value[ids]
        chosen = ids.tolist()
        tables = {name: PersonalTable.cat([own[u] for u in chosen]) for name, own in self._tables.items()}
        return State(tensors, tables)

    def write(self, ids: Ids, private: State) -> None:
        """Keep what these clients learnt."""
        for name, value in private.tensors.items():
            self._tensors[name][ids] = value
        for name, table in private.tables.items():
            for client, own in zip(ids.tolist(), table.singles(), strict=True):
                self._tables[name][client] = own
        self._awake[ids] = self._trained[ids] = True

    def _wake(self, ids: Ids) -> None:
        fresh = ids[~self._awake[ids]]
        if len(fresh) and self._common.keys() != self._tensors.keys():
            for name, value in self._initial(fresh).tensors.items():
                if name not in self._common:
                    self._tensors[name][fresh] = value
        self._awake[fresh] = True

    def everyone(self) -> State:
        """All clients' state; the tensors are not copied."""
        for start in range(0, self._n_clients, WAKE_BLOCK):
            ids = torch.arange(start, min(start + WAKE_BLOCK, self._n_clients))
            self._wake(ids)
            for name, value in self._common.items():
                self._tensors[name][ids[~self._trained[ids]]] = value
        self._trained.fill_(True)
        return State(self._tensors, {name: PersonalTable.cat(own) for name, own in self._tables.items()})

    def load(self, state: State) -> None:
        """Replace everything by what `everyone` returned earlier."""
        for name, value in self._tensors.items():
            value.copy_(state[name])
        self._tables = {name: table.singles() for name, table in state.tables.items()}
        self._awake.fill_(True)
        self._trained.fill_(True)
