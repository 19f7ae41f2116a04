from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.builders import enough_rounds, random_split, tiny

import fedrecgel
from fedrecgel.data.federation import LEARNT_FROM, Newcomers, SamplingSettings
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, DataError
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedmf import STRIDES, FedMF
from fedrecgel.methods.messages import Download, Problem, Server
from fedrecgel.runs.fold_in import newcomers
from fedrecgel.runs.recommend import best_items
from fedrecgel.runs.result import Result
from fedrecgel.tables import State

SPLIT = random_split(n_users=10, n_items=120)
CANNOT = {"cofedrec"}
HISTORY: list[int | str] = [112, 105, 117, 170, 105]


def train(name: str) -> Result:
    return fedrecgel.train(name, SPLIT, rounds=enough_rounds(name, 2), **tiny(name))


@pytest.fixture(scope="module")
def result() -> Result:
    return train("fedncf")


@pytest.mark.parametrize("name", [name for name in METHODS if name not in CANNOT])
def test_every_method_recommends_to_a_newcomer_what_it_does_not_have(name: str) -> None:
    trained = train(name)
    folded = trained.fold_in(HISTORY)
    everything = folded.recommend(k=1000)
    assert {best.item for best in everything} == set(trained.item_ids) - set(HISTORY)
    assert folded.recommend(3) == everything[:3]
    assert trained.recommend(history=HISTORY, k=3) == everything[:3]


def test_a_method_that_cannot_says_why() -> None:
    with pytest.raises(ConfigError, match="'cofedrec' cannot recommend to a user who never took part: its server has"):
        train("cofedrec").fold_in(HISTORY)


@pytest.mark.parametrize("name", ["popularity", "itemknn", "ease", "ials", "gfcf", "spectra"])
def test_methods_without_private_parts_score_a_newcomer_as_a_user_with_these_rows(name: str) -> None:
    trained = train(name)
    assert trained.observed is not None
    rows = replace(newcomers(trained, trained.train), known=trained.observed)
    assert not rows.private.pack()
    (expected,) = best_items(rows, range(10), 5, 10)
    found = [best.item for user in [*trained.user_ids] for best in trained.recommend(user, 5)]
    assert [trained.item_ids[item] for item in expected.items.tolist()] == found


@pytest.mark.parametrize("name", ["fedncf", "fedrecgel"])
def test_leaving_out_what_only_uploads_need_changes_nothing(name: str) -> None:
    options: dict[str, Any] = {"gmf_dim": 8, "mlp_dim": 16}
    method = METHODS[name](**options)
    problem, draws, ids = Problem(10, 120, torch.float64), Draws(3), torch.arange(4)
    down = method.welcome(method.init_server(problem, draws), 4)
    own = Newcomers(SPLIT.train, SamplingSettings(), torch.float64)
    found, wanted = method.init_clients(problem, ids, draws), method.init_clients(problem, ids, draws)
    for number in range(3):
        batch = own.batch(ids, number, draws)
        found = method.local_round(found, down, batch, number, draws)
        wanted = Method.local_round(method, wanted, down, batch, number, draws)
    for key, value in wanted.tensors.items():
        torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-12)


def test_strides_of_fedmf_are_its_published_steps_for_several_examples_at_once() -> None:
    method = FedMF(updates="batch")
    problem, draws, ids = Problem(10, 120, torch.float64), Draws(3), torch.arange(10)
    down = method.welcome(method.init_server(problem, draws), 10)
    batch = Newcomers(SPLIT.train, SamplingSettings(), torch.float64).batch(ids, 0, draws)
    start = torch.randn(10, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = method.local_round(State({"user": start}), down, batch, 0, draws)["user"]
    for client in range(10):
        user, examples = start[client], batch.items[client][batch.mask[client]]
        labels, n = batch.labels[client][batch.mask[client]], int(batch.n_examples[client])
        for stride in range(STRIDES):
            chosen = [place for place in range(n) if place * STRIDES // n == stride]
            v, y = down.shared["items"][examples[chosen]], labels[chosen]
            error = torch.sigmoid(v @ user) - y
            user = user - method.lr * (error @ v + 2 * method.reg_user * len(chosen) * user)
        torch.testing.assert_close(found[client], user, rtol=1e-12, atol=1e-12)


def test_the_same_history_gives_the_same_and_leaves_the_run_as_it_was(result: Result) -> None:
    before = {name: value.clone() for name, value in result.shared.items()}
    assert result.fold_in(HISTORY).recommend() == result.fold_in(HISTORY).recommend()
    assert all(torch.equal(result.shared[name], value) for name, value in before.items())


def test_the_order_of_a_history_is_kept() -> None:
    recent = train("ease")
    rows = recent.fold_in([112, 105, 117]).audience.history
    assert rows.recency is not None
    assert (rows.items.tolist(), rows.recency.tolist()) == ([5, 12, 17], [1, 2, 0])
    assert recent.fold_in([105, 112, 105]).audience.history.counts.tolist() == [2, 1]


def test_ids_typed_as_text_are_the_same_items(result: Result) -> None:
    assert result.recommend(history=["112", "105"]) == result.recommend(history=[112, 105])


def test_unknown_items_are_named_and_left_out(result: Result) -> None:
    with pytest.warns(UserWarning, match=r"The run does not know items 7, x: left out of the history\."):
        folded = result.fold_in([7, 112, "x", 7])
    assert folded.skipped == (7, "x", 7)
    assert folded.recommend() == result.recommend(history=[112])


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (
            [],
            r"The history should name items of the run\. Found none\. Give at least one of its 120 items, .* 100",
        ),
        ([1, 2], r"It knows none of items 1, 2\. Give at least one of its 120 items"),
        (range(20), r"It knows none of items 0, 1, 2, 3, 4 and 15 more\."),
    ],
)
def test_a_history_without_known_items_is_refused(history: list[int | str], message: str, result: Result) -> None:
    with pytest.raises(ConfigError, match=message):
        result.fold_in(history)


def test_a_user_or_a_history(result: Result) -> None:
    for given in ({}, {"user": "u1", "history": [112]}):
        with pytest.raises(ConfigError, match="Give one of them"):
            result.recommend(**given)  # type: ignore[arg-type]


def test_a_newcomer_with_nearly_everything_is_told(result: Result) -> None:
    with pytest.raises(DataError, match="Found 1 for the most active user"):
        result.fold_in(range(100, 219))


def test_a_long_history_is_learnt_from_its_latest_items_and_none_of_it_is_a_negative(result: Result) -> None:
    many = [*result.item_ids[:LEARNT_FROM], *result.item_ids[-12:]]
    rows = result.fold_in(many).audience.history
    own = Newcomers(rows, SamplingSettings())
    batch = own.batch(torch.zeros(1, dtype=torch.int64), 0, Draws(0))
    assert {result.item_ids[item] for item in batch.items[batch.labels > 0].tolist()} == set(many[-LEARNT_FROM:])
    assert not {result.item_ids[item] for item in batch.items[batch.labels == 0].tolist()} & set(many)


def test_a_method_with_downloads_of_its_own_must_welcome_newcomers() -> None:
    class Odd(FedMF):
        def broadcast(self, server: Server, ids: torch.Tensor) -> Download:
            return super().broadcast(server, ids)

    with pytest.raises(ConfigError, match=r"Odd sends each client something of its own .* Write `Odd\.welcome`"):
        Odd().welcome(Server({}), 1)


def test_folding_many_in_equals_folding_each(result: Result) -> None:
    users, items = np.array([[0, 0, 1, 2, 2], [3, 9, 4, 70, 71]], dtype=np.int32)
    rows = ItemSets.from_pairs(users, items, 3, 120)
    (together,) = best_items(newcomers(result, rows), range(3), 4, 3)
    first = result.recommend(history=[103, 109], k=4)
    assert [result.item_ids[item] for item in together.items[:4].tolist()] == [best.item for best in first]
