"""Item tables of many clients against the dense tensor [C, n, d] they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedrecgel.tables import ItemTable, PersonalTable, StackedTable, State

N, D = 7, 2
seeds = st.integers(0, 10_000)
clients = st.integers(1, 5)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@dataclass
class Pair:
    """A table, and the dense tensor it should equal, after some rounds of changes."""

    table: PersonalTable
    dense: Tensor

    @classmethod
    def of(cls, n_clients: int, seed: int, rounds: int = 3) -> Pair:
        """Clients with one of two bases, each with rows of its own, some rows changed more than once."""
        generator = torch.Generator().manual_seed(seed)
        bases = torch.randn(2, N, D, generator=generator, dtype=torch.float64)
        first = n_clients // 2
        parts = [PersonalTable.common(bases[0], first), PersonalTable.common(bases[1], n_clients - first)]
        pair = cls(
            PersonalTable.cat(parts),
            torch.cat([bases[:1].expand(first, -1, -1), bases[1:].expand(n_clients - first, -1, -1)]),
        )
        for number in range(rounds):
            pair = pair.changed(generator, decays=number % 2 == 1)
        return pair

    def changed(self, generator: torch.Generator, *, decays: bool) -> Pair:
        """Each client puts in up to three rows; everything else shrinks by the client's own factor."""
        n_clients = len(self.dense)
        at = torch.stack([torch.randperm(N, generator=generator)[:3] for _ in range(n_clients)])
        mask = torch.rand(at.shape, generator=generator) < 0.6
        values = torch.randn(n_clients, 3, D, generator=generator, dtype=torch.float64)
        decay = 0.5 + 0.5 * torch.rand(n_clients, generator=generator, dtype=torch.float64) if decays else None
        dense = self.dense.clone() if decay is None else self.dense * decay[:, None, None]
        for client in range(n_clients):
            for row, valid, value in zip(at[client], mask[client], values[client], strict=True):
                if valid:
                    dense[client, row] = value
        return Pair(self.table.with_rows(at, mask, values, decay), dense)


@settings(max_examples=40, deadline=None)
@given(clients, seeds, st.integers(0, 4))
def test_a_personal_table_is_the_dense_table_it_stands_for(n_clients: int, seed: int, rounds: int) -> None:
    pair = Pair.of(n_clients, seed, rounds)
    close(pair.table.dense(), pair.dense)
    at = torch.randint(N, (n_clients, 9), generator=torch.Generator().manual_seed(seed))  # rows repeat
    close(pair.table.rows(at), pair.dense.gather(1, at[:, :, None].expand(-1, -1, D)))


@settings(max_examples=30, deadline=None)
@given(clients, seeds)
def test_changing_rows_leaves_the_table_it_came_from(n_clients: int, seed: int) -> None:
    pair = Pair.of(n_clients, seed)
    pair.changed(torch.Generator().manual_seed(seed + 1), decays=True)
    pair.table.rows(torch.zeros(n_clients, 1, dtype=torch.int64)).fill_(9.0)
    pair.table.dense().fill_(9.0)
    close(pair.table.dense(), pair.dense)


@settings(max_examples=30, deadline=None)
@given(clients, seeds, st.data())
def test_some_of_the_clients(n_clients: int, seed: int, data: st.DataObject) -> None:
    pair = Pair.of(n_clients, seed)
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, n_clients - 1), min_size=1, max_size=6)))
    close(pair.table[chosen].dense(), pair.dense[chosen])
    start = data.draw(st.integers(0, n_clients - 1))
    part = pair.table[start:]
    close(part.dense(), pair.dense[start:])
    close(part.rows(torch.full((n_clients - start, 1), 3)), pair.dense[start:, 3:4])


@settings(max_examples=30, deadline=None)
@given(clients, clients, seeds)
def test_apart_and_together_again(first: int, second: int, seed: int) -> None:
    one, other = Pair.of(first, seed), Pair.of(second, seed + 1)
    singles = [*one.table.singles(), *other.table.singles()]
    wanted = torch.cat([one.dense, other.dense])
    assert len(singles) == first + second
    for single, dense in zip(singles, wanted, strict=True):
        close(single.dense(), dense[None])
    close(PersonalTable.cat(singles).dense(), wanted)
    close(PersonalTable.cat([one.table, other.table]).dense(), wanted)
    together = PersonalTable.cat(singles)
    assert len(together.bases) == len({id(base) for single in singles for base in single.bases}) <= 4


def test_singles_have_memory_of_their_own() -> None:
    pair = Pair.of(3, 0)
    for single in pair.table.singles():
        single.values.fill_(9.0)
        single.scale.fill_(9.0)
    close(pair.table.dense(), pair.dense)


def test_a_common_base_is_kept_once() -> None:
    base = torch.randn(N, D)
    table = PersonalTable.cat([PersonalTable.common(base, 2), PersonalTable.common(base, 1)])
    assert len(table.bases) == 1
    assert table.bases[0] is base
    assert table.values.numel() == 0
    assert torch.equal(table.dense(), base.expand(3, -1, -1))


@settings(max_examples=30, deadline=None)
@given(clients, seeds)
def test_rows_belong_to_who_changed_them(n_clients: int, seed: int) -> None:
    pair = Pair.of(n_clients, seed)
    start = Pair.of(n_clients, seed, rounds=0).dense * pair.table.scale[:, None, None]
    for client in range(n_clients):
        moved = (pair.dense[client] - start[client]).abs().amax(1) > 1e-9
        assert pair.table.at[pair.table.owners == client].tolist() == moved.nonzero().flatten().tolist()


@settings(max_examples=30, deadline=None)
@given(clients, seeds)
def test_packing(n_clients: int, seed: int) -> None:
    pair = Pair.of(n_clients, seed)
    parts = {name: value.clone() for name, value in pair.table.pack().items()}
    assert torch.equal(PersonalTable.unpack(parts).dense(), pair.table.dense())
    again = PersonalTable.unpack(parts)
    close(
        Pair(again, pair.dense).changed(torch.Generator().manual_seed(seed), decays=True).table.dense(),
        pair.changed(torch.Generator().manual_seed(seed), decays=True).dense,
    )


def test_bytes_are_those_of_dense_tables() -> None:
    pair = Pair.of(4, 0)
    assert pair.table.n_bytes == pair.dense.numel() * 8
    stacked = StackedTable(pair.dense[:2], torch.tensor([0, 1, 1]))
    assert stacked.n_bytes == 3 * N * D * 8


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), seeds)
def test_stacked_tables(which: list[int], seed: int) -> None:
    stack = torch.randn(3, N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    table, dense = StackedTable(stack, torch.tensor(which)), stack[which]
    assert torch.equal(table.dense(), dense)
    at = torch.randint(N, (len(which), 4), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(table.rows(at), dense.gather(1, at[:, :, None].expand(-1, -1, D)))
    last = torch.tensor([len(which) - 1])
    assert torch.equal(table[last].dense(), dense[-1:])
    assert torch.equal(table[:1].rows(at[:1]), table.rows(at)[:1])
    table.dense().fill_(9.0)
    assert torch.equal(table.dense(), dense)


def test_both_kinds_are_item_tables() -> None:
    pair = Pair.of(2, 0)
    assert isinstance(pair.table, ItemTable)
    assert isinstance(StackedTable(pair.dense, torch.arange(2)), ItemTable)


@settings(max_examples=20, deadline=None)
@given(clients, seeds)
def test_state(n_clients: int, seed: int) -> None:
    first, second = Pair.of(n_clients, seed), Pair.of(n_clients, seed + 1)
    vectors = torch.arange(3.0 * n_clients).view(n_clients, 3)
    state = State({"user": vectors}, {"own": first.table, "other": second.table})
    assert torch.equal(state["user"], vectors)
    with pytest.raises(KeyError):
        state["own"]
    packed = state.pack()
    assert all(isinstance(value, Tensor) for value in packed.values())
    for same in (State.unpack(packed), state.to(torch.device("cpu")), state.of(slice(None))):
        assert torch.equal(same["user"], vectors)
        assert set(same.tables) == {"own", "other"}
        close(same.tables["own"].dense(), first.dense)
        close(same.tables["other"].dense(), second.dense)
    chosen = torch.tensor([n_clients - 1, 0])
    part = state.of(chosen)
    assert torch.equal(part["user"], vectors[chosen])
    close(part.tables["other"].dense(), second.dense[chosen])


def test_a_state_with_stacks() -> None:
    """Clients 0, 2 and 3 have the same, kept once; whoever asks gets tensors of their own."""
    user, stack = torch.arange(8.0).view(4, 2), torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    state = State({"user": user}, {}, {"w": stack}, torch.tensor([0, 1, 0, 0]))
    wanted = stack[[0, 1, 0, 0]]
    for same in (state, State.unpack(state.pack()), state.to(torch.device("cpu")), state.copy()):
        assert torch.equal(same["w"], wanted)
        assert torch.equal(same["user"], user)
        assert len(same.stacks["w"]) == 2
        for index in (slice(None), slice(1, 3), torch.tensor([3, 1])):
            part = same.of(index)
            assert (part.stacks, part.which) == ({}, None)
            assert torch.equal(part["w"], wanted[index])
            assert torch.equal(part["user"], user[index])
    kept = state.copy()
    stack.fill_(0)
    assert torch.equal(kept["w"], wanted)


def test_a_state_without_tables() -> None:
    assert State().pack() == {}
    assert State.unpack({}).tables == {}
