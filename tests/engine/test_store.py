from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import TINY

from fedrecgel.draws import Draws
from fedrecgel.engine.store import ClientStore
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.messages import Problem
from fedrecgel.methods.pfedrec import PFedRec
from fedrecgel.methods.popularity import Popularity
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors

METHOD, PROBLEM, DRAWS = FedNCF(**TINY), Problem(9, 20, torch.float64), Draws(5)


def equal(first: Tensors, second: Tensors) -> bool:
    return set(first) == set(second) and all(torch.equal(first[name], second[name]) for name in first)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, 8), min_size=1, unique=True), max_size=5))
def test_whenever_a_client_wakes_it_starts_the_same(reads: list[list[int]]) -> None:
    store = ClientStore(METHOD, PROBLEM, DRAWS)
    everyone = METHOD.init_clients(PROBLEM, torch.arange(9), DRAWS).tensors
    for ids in reads:
        assert equal(store.read(torch.tensor(ids)).tensors, {name: value[ids] for name, value in everyone.items()})
    assert equal(store.everyone().tensors, everyone)


def test_what_is_written_is_read_and_nobody_else_changes() -> None:
    store = ClientStore(METHOD, PROBLEM, DRAWS)
    before = {name: value.clone() for name, value in store.everyone().tensors.items()}
    ids = torch.tensor([7, 2])
    learnt = {name: value + 1 for name, value in store.read(ids).tensors.items()}
    store.write(ids, State(learnt))
    assert equal(store.read(ids).tensors, learnt)
    assert equal(store.read(ids.flip(0)).tensors, {name: value.flip(0) for name, value in learnt.items()})
    others = torch.tensor([0, 1, 3, 4, 5, 6, 8])
    assert equal(store.read(others).tensors, {name: value[others] for name, value in before.items()})


def test_a_client_written_before_it_was_read_is_not_reset() -> None:
    store = ClientStore(METHOD, PROBLEM, DRAWS)
    learnt = {name: value + 1 for name, value in METHOD.init_clients(PROBLEM, torch.tensor([4]), DRAWS).tensors.items()}
    store.write(torch.tensor([4]), State(learnt))
    assert equal({name: value[4:5] for name, value in store.everyone().tensors.items()}, learnt)


def test_reading_gives_copies() -> None:
    store = ClientStore(METHOD, PROBLEM, DRAWS)
    store.read(torch.tensor([1]))["user"].fill_(9.0)
    assert not (store.read(torch.tensor([1]))["user"] == 9.0).any()


def test_looking_finds_what_reading_copies() -> None:
    method = CoFedRec(dim=3)
    store, ids, at = ClientStore(method, PROBLEM, DRAWS), torch.tensor([3, 8, 0]), torch.tensor([[1, 4]] * 3)
    trained = store.read(ids[1:])
    store.write(ids[1:], State({name: value + torch.rand_like(value) for name, value in trained.tensors.items()}))
    seen, copied = store.look(ids), store.read(ids)
    assert all(torch.equal(seen[name], copied[name]) for name in ("w", "b", "items"))
    assert torch.equal(seen.rows("items", at), copied["items"][:, [1, 4]])
    assert torch.equal(copied.rows("items", at), copied["items"][:, [1, 4]])
    assert not torch.equal(seen.rows("items", at)[0], seen.rows("items", at)[1])


@pytest.mark.parametrize("ids", [[2, 3, 4], [4, 3, 2], [2, 4], [7], []])
def test_neighbours_are_seen_as_they_are_read(ids: list[int]) -> None:
    store, chosen = ClientStore(METHOD, PROBLEM, DRAWS), torch.tensor(ids, dtype=torch.int64)
    seen, copied = store.look(chosen), store.read(chosen)
    assert all(torch.equal(seen[name], copied[name]) for name in copied.tensors)


def test_load() -> None:
    first, second = ClientStore(METHOD, PROBLEM, DRAWS), ClientStore(METHOD, PROBLEM, Draws(6))
    saved = {name: value.clone() for name, value in first.everyone().tensors.items()}
    second.load(State(saved))
    assert equal(second.everyone().tensors, saved)
    second.write(torch.tensor([0]), State({name: value[:1] + 1 for name, value in saved.items()}))
    assert equal(first.everyone().tensors, saved)


def test_a_method_without_private_tensors() -> None:
    store = ClientStore(Popularity(), PROBLEM, DRAWS)
    assert store.read(torch.tensor([1, 2])).tensors == {} == store.everyone().tensors


TABLED = PFedRec(dim=3)


def changed(store: ClientStore, ids: torch.Tensor, row: int, value: float) -> State:
    """What these clients hold, with another score function and one row of their table replaced."""
    state = store.read(ids)
    at, mask = torch.full((len(ids), 1), row), torch.ones(len(ids), 1, dtype=torch.bool)
    table = state.tables["items"].with_rows(at, mask, torch.full((len(ids), 1, 3), value, dtype=torch.float64))
    return State({**state.tensors, "w": state["w"] + value, "trained": state["trained"] + 1}, {"items": table})


def test_a_common_start_is_kept_once_until_a_client_has_trained() -> None:
    store = ClientStore(TABLED, PROBLEM, DRAWS)
    start = TABLED.init_clients(PROBLEM, torch.arange(9), DRAWS)
    bases = store.read(torch.arange(9)).tables["items"].bases
    assert len(bases) == 1
    assert torch.equal(store.read(torch.tensor([8, 0]))["w"], start["w"][[8, 0]])
    ids = torch.tensor([2, 5])
    store.write(ids, changed(store, ids, row=4, value=1.5))
    mixed = torch.tensor([5, 0, 2, 8])
    found = store.read(mixed)
    assert found["trained"].tolist() == [1, 0, 1, 0]
    for place, client in enumerate(mixed.tolist()):
        assert torch.equal(found["w"][place], start["w"][client] + 1.5 * (client in (2, 5)))
    assert [id(base) for base in found.tables["items"].bases] == [id(bases[0])]
    assert found.tables["items"].ptr.diff().tolist() == [1, 0, 1, 0]
    found["w"].fill_(9.0)
    assert torch.equal(store.read(torch.tensor([0]))["w"], start["w"][:1])


def test_tables_are_written_read_and_loaded() -> None:
    store = ClientStore(TABLED, PROBLEM, DRAWS)
    wanted = store.read(torch.arange(9)).tables["items"].dense()
    for ids, row, value in (([2, 5], 4, 1.5), ([5, 7], 4, -2.0), ([7], 0, 3.0)):
        store.write(torch.tensor(ids), changed(store, torch.tensor(ids), row, value))
        wanted[ids, row] = value
    everyone = store.everyone()
    assert torch.equal(everyone.tables["items"].dense(), wanted)
    assert everyone["trained"].tolist() == [0, 0, 1, 0, 0, 2, 0, 2, 0]
    assert len(everyone.stacks["w"]) == 4, "the start, and those of three clients"
    for ids in ([7, 2], [0], [5, 5, 1]):
        assert torch.equal(store.read(torch.tensor(ids)).tables["items"].dense(), wanted[ids])
    again = ClientStore(TABLED, PROBLEM, Draws(6))
    again.load(State.unpack({name: value.clone() for name, value in everyone.pack().items()}))
    assert equal(again.everyone().pack(), everyone.pack())
    assert torch.equal(again.everyone().tables["items"].dense(), wanted)
    assert torch.equal(again.read(torch.tensor([7, 2])).tables["items"].dense(), wanted[[7, 2]])
    for number, state in enumerate((everyone, everyone.of(slice(None)))):  # also with a tensor of their own for all
        again.load(state)
        again.write(torch.tensor([0, 5]), changed(again, torch.tensor([0, 5]), row=1, value=0.5))
        assert again.read(torch.arange(9))["trained"].tolist() == [1, 0, 1, 0, 0, 3, 0, 2, 0], number
    assert everyone["trained"].tolist() == [0, 0, 1, 0, 0, 2, 0, 2, 0], "what was loaded is not written to"
