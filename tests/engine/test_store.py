from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import TINY

from fedrecgel.draws import Draws
from fedrecgel.engine.store import ClientStore
from fedrecgel.methods.base import Problem
from fedrecgel.methods.fedncf import FedNCF
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
