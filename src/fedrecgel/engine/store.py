"""ClientStore: the private state of every client; a client never seen starts from `init_clients`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedrecgel.draws import Draws
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Problem
from fedrecgel.tables import PersonalTable, State
from fedrecgel.tensors import Ids, Tensors, lazy_zeros, put_rows, release

WAKE_BLOCK = 20_000
"""Clients initialised at once: drawing their vectors takes several times the memory they keep."""
START = 0
"""Place in the stacks of what all clients start with; whoever trains gets a place of its own."""


class ClientStore:
    """A simulator's stand-in for all devices; the server side never reads it.

    Tensors drawn for each client are contiguous, and item tables are kept as the rows each client changed. What all
    clients start with in common is kept once, here and in files, until a client has trained.
    """

    def __init__(self, method: Method, problem: Problem, draws: Draws) -> None:
        self._initial: Callable[[Ids], State] = lambda ids: method.init_clients(problem, ids, draws)
        first, self._n_clients = self._initial(torch.zeros(1, dtype=torch.int64)), problem.n_clients
        self._tensors = {
            name: lazy_zeros((problem.n_clients, *value.shape[1:]), value.dtype, value.device)
            for name, value in first.tensors.items()
        }
        self._stacks: Tensors = {}
        self._which = torch.full((problem.n_clients,), START)
        self._n_places = START + 1
        self._stack(first.stacks)
        self._tables = {name: table.singles()[:1] * problem.n_clients for name, table in first.tables.items()}
        self._awake = torch.zeros(problem.n_clients, dtype=torch.bool)
        """Clients whose own initial tensors were drawn."""

    def _stack(self, filled: Tensors) -> None:
        """Room for everybody, of which pages are taken as clients train."""
        for name, value in filled.items():
            self._stacks[name] = lazy_zeros((self._n_clients + 1, *value.shape[1:]), value.dtype, value.device)
            put_rows(self._stacks[name], torch.arange(len(value)), value)

    def read(self, ids: Ids) -> State:
        """Copies of these clients' state."""
        seen = self.lend(ids)
        return State({**seen.tensors, **{name: seen[name] for name in seen.stacks}}, seen.tables)

    def lend(self, ids: Ids) -> State:
        """The same, where a dense item table is copied only if it is asked for."""
        return self._seen(ids, ids)

    def look(self, ids: Ids) -> State:
        """These clients' state, to read only: neither dense item tables nor slices of neighbours are copied."""
        return self._seen(ids, _as_range(ids))

    def _seen(self, ids: Ids, at: Ids | slice) -> State:
        self._wake(ids)
        chosen = ids.tolist()
        tables = {name: PersonalTable.cat([own[u] for u in chosen]) for name, own in self._tables.items()}
        tensors = {name: value[at] for name, value in self._tensors.items()}
        return State(tensors, tables, self._stacks, self._which[ids] if self._stacks else None)

    def write(self, ids: Ids, private: State) -> None:
        """Keep what these clients learnt."""
        new = ids[self._which[ids] == START]
        self._which[new] = torch.arange(self._n_places, self._n_places + len(new))
        self._n_places += len(new)
        for name, value in private.tensors.items():
            if name in self._stacks:
                put_rows(self._stacks[name], self._which[ids], value)
            else:
                self._tensors[name][ids] = value
        for name, table in private.tables.items():
            for client, own in zip(ids.tolist(), table.singles(), strict=True):
                self._tables[name][client] = own
        self._awake[ids] = True

    def release(self) -> None:
        """Give back the memory of tables that live in files."""
        for stack in self._stacks.values():
            release(stack)

    def _wake(self, ids: Ids) -> None:
        fresh = ids[~self._awake[ids]]
        if len(fresh) and self._tensors:
            for name, value in self._initial(fresh).tensors.items():
                self._tensors[name][fresh] = value
        self._awake[fresh] = True

    def everyone(self) -> State:
        """All clients' state; the tensors are not copied."""
        for start in range(0, self._n_clients, WAKE_BLOCK):
            self._wake(torch.arange(start, min(start + WAKE_BLOCK, self._n_clients)))
        stacks = {name: stack[: self._n_places] for name, stack in self._stacks.items()}
        tables = {name: PersonalTable.cat(own) for name, own in self._tables.items()}
        return State(self._tensors, tables, stacks, self._which if stacks else None)

    def load(self, state: State, *, give: bool = False) -> None:
        """Replace everything by what `everyone` returned earlier; with `give` its tensors are ours from then on."""
        if give and all(_alike(state.tensors[name], value) for name, value in self._tensors.items()):
            self._tensors = dict(state.tensors)  # half the memory of a copy
        elif state.which is None:  # nothing is held in common
            self.write(torch.arange(self._n_clients), state)
        else:
            for name, value in self._tensors.items():
                value.copy_(state[name])
        self._tables = {name: table.singles() for name, table in state.tables.items()}
        self._awake.fill_(True)
        if state.which is None:
            return
        self._stack(state.stacks)
        self._which = state.which.cpu().clone()
        self._n_places = int(self._which.max()) + 1


def _alike(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype and first.device == second.device


def _as_range(ids: Ids) -> Ids | slice:
    """The same clients as a range, if they are neighbours in order."""
    first = int(ids[0]) if len(ids) else 0
    end = first + len(ids)
    return slice(first, end) if torch.equal(ids, torch.arange(first, end)) else ids
