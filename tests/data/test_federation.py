from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import interactions_of, random_split

from fedrecgel.data.federation import ClientBatch, Federation, SamplingSettings
from fedrecgel.data.split import Split, leave_one_out
from fedrecgel.draws import Draws
from fedrecgel.errors import DataError

SPLIT = random_split(n_users=10, n_items=130, validation=True)
DRAWS = Draws(3)
subsets = st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True)


def training_items(split: Split, user: int) -> list[int]:
    items: list[int] = split.train.items[split.train.ptr[user] : split.train.ptr[user + 1]].tolist()
    return items


def own(batch: ClientBatch, client: int) -> dict[str, list[float]]:
    """One client's part of a batch, without padding."""
    mask, row_mask = batch.mask[client], batch.row_mask[client]
    parts = {name: getattr(batch, name)[client][mask] for name in ("items", "labels", "slots")}
    parts |= {name: getattr(batch, name)[client][row_mask] for name in ("rows", "row_counts")}
    return {name: value.tolist() for name, value in parts.items()}


@settings(max_examples=30, deadline=None)
@given(subsets, st.integers(0, 99), st.integers(1, 6), st.booleans())
def test_each_positive_is_followed_by_its_distinct_negatives(users: list[int], round: int, k: int, leaky: bool) -> None:
    federation = Federation(SPLIT, SamplingSettings(k, leaky))
    ids = torch.tensor(users)
    batch = federation.batch(ids, round, DRAWS)
    assert torch.equal(federation.n_examples(ids), batch.n_examples)
    for client, user in enumerate(users):
        groups = np.array(own(batch, client)["items"]).reshape(-1, 1 + k)
        labels = np.array(own(batch, client)["labels"]).reshape(-1, 1 + k)
        assert sorted(groups[:, 0]) == training_items(SPLIT, user)
        assert labels.tolist() == [[1.0] + [0.0] * k] * len(groups)
        for group in groups:
            assert len(set(group)) == 1 + k
            assert not set(group[1:]) & set(training_items(SPLIT, user))
            assert SPLIT.validation is not None
            assert not (leaky and set(group[1:]) & {SPLIT.test[user], SPLIT.validation[user]})


def test_the_held_out_item_is_an_ordinary_negative_unless_excluded() -> None:
    """Nine items: 0-4 in training, 5 held out, so exactly four are outside training and three unobserved."""
    split = leave_one_out(interactions_of([(0, item, item) for item in range(6)], 9), candidates=2)
    honest = Federation(split, SamplingSettings(4)).batch(torch.tensor([0]), 0, DRAWS)
    for group in honest.items.reshape(-1, 5).tolist():
        assert set(group[1:]) == {5, 6, 7, 8}
    leaky = Federation(split, SamplingSettings(3, exclude_heldout_from_negatives=True))
    for group in leaky.batch(torch.tensor([0]), 0, DRAWS).items.reshape(-1, 4).tolist():
        assert set(group[1:]) == {6, 7, 8}
    with pytest.raises(DataError, match=r"Drawing 4 distinct negatives.*Found 3"):
        Federation(split, SamplingSettings(4, exclude_heldout_from_negatives=True)).check_negatives()


@settings(max_examples=25, deadline=None)
@given(subsets, st.integers(0, 99))
def test_a_client_draws_the_same_in_any_company(users: list[int], round: int) -> None:
    federation = Federation(SPLIT)
    together = federation.batch(torch.tensor(users), round, DRAWS)
    for client, user in enumerate(users):
        alone = federation.batch(torch.tensor([user]), round, DRAWS)
        assert own(together, client) == own(alone, 0)
        assert bool(alone.mask.all())
        assert bool(alone.row_mask.all())


def test_rounds_and_seeds_draw_afresh() -> None:
    federation = Federation(SPLIT)
    ids = torch.arange(10)
    items = [federation.batch(ids, t, Draws(seed)).items for t, seed in ((0, 0), (1, 0), (0, 1))]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert float((items[first] == items[second]).double().mean()) < 0.5
        order = [items[k][0, ::5].tolist() for k in (first, second)]
        assert order[0] != order[1]


def test_rows_are_the_distinct_items_and_slots_point_to_them() -> None:
    batch = Federation(SPLIT, SamplingSettings(6)).batch(torch.arange(10), 7, DRAWS)
    found = torch.gather(batch.rows, 1, batch.slots)
    assert torch.equal(found[batch.mask], batch.items[batch.mask])
    for client in range(10):
        part = own(batch, client)
        assert part["rows"] == sorted(set(part["items"]))
        assert not batch.row_counts[client][~batch.row_mask[client]].any()


def test_row_counts_are_training_rows() -> None:
    batch = Federation(SPLIT).batch(torch.arange(10), 0, DRAWS)
    held_out = [(user, int(item)) for user, item in enumerate(SPLIT.test)]
    assert SPLIT.validation is not None
    held_out += [(user, int(item)) for user, item in enumerate(SPLIT.validation)]
    pairs = list(zip(SPLIT.interactions.users.tolist(), SPLIT.interactions.items.tolist(), strict=True))
    for client in range(10):
        part = own(batch, client)
        expected = [pairs.count((client, int(row))) - held_out.count((client, int(row))) for row in part["rows"]]
        assert part["row_counts"] == [max(count, 0) for count in expected]
        assert batch.row_labels[client][batch.row_mask[client]].tolist() == [float(c > 0) for c in expected]
    assert int(batch.row_counts.max()) > 1


@settings(max_examples=25, deadline=None)
@given(subsets, st.none() | st.integers(1, 80), st.integers(0, 20))
def test_row_weights_against_a_loop_over_chunks(users: list[int], chunk: int | None, round: int) -> None:
    """A small catalogue, so that negatives repeat; chunks that rarely divide the number of examples."""
    split = random_split(n_users=10, n_items=60, candidates=20)
    batch = Federation(split, dtype=torch.float64).batch(torch.tensor(users), round, DRAWS)
    weights = batch.row_weights(chunk)
    for client in range(len(users)):
        items = own(batch, client)["items"]
        expected = dict.fromkeys(own(batch, client)["rows"], 0.0)
        size = chunk or len(items)
        for start in range(0, len(items), size):
            piece = items[start : start + size]
            for item in piece:
                expected[item] += 1 / len(piece)
        assert weights[client][batch.row_mask[client]].tolist() == pytest.approx(list(expected.values()), rel=1e-13)
        assert not weights[client][~batch.row_mask[client]].any()


def test_tensors_have_the_asked_type() -> None:
    batch = Federation(SPLIT, dtype=torch.float64).batch(torch.tensor([1, 0]), 0, DRAWS)
    assert (batch.labels.dtype, batch.row_weights(8).dtype) == (torch.float64, torch.float64)
    assert batch.ids.tolist() == [1, 0]


CROWDED = Federation(random_split(n_users=10, n_items=60, candidates=20), dtype=torch.float64)
"""A small catalogue: negatives repeat."""


@settings(max_examples=25, deadline=None)
@given(subsets, st.integers(1, 90), st.integers(0, 20), st.integers(0, 3))
def test_an_epoch_of_steps_shows_every_example_once(users: list[int], size: int, round: int, epoch: int) -> None:
    batch = CROWDED.batch(torch.tensor(users), round, DRAWS)
    steps = list(batch.steps(size, round, DRAWS, epoch))
    seen = torch.zeros_like(steps[0])
    for number, weights in enumerate(steps):
        n_inside = (batch.n_examples - number * size).clamp(min=0, max=size)
        torch.testing.assert_close(weights.sum(1), (n_inside > 0).double())  # a mean, or nothing left
        assert not weights[~batch.row_mask].any()
        seen += weights * n_inside[:, None]  # how often each item is in this batch
        torch.testing.assert_close(seen, seen.round(), rtol=0, atol=1e-9)
    for client in range(len(users)):
        items = own(batch, client)["items"]
        wanted = [items.count(row) for row in own(batch, client)["rows"]]
        assert seen[client][batch.row_mask[client]].round().tolist() == wanted


@settings(max_examples=25, deadline=None)
@given(subsets, st.integers(1, 90), st.integers(0, 9))
def test_steps_of_a_client_are_the_same_in_any_company(users: list[int], size: int, wider: int) -> None:
    batch = CROWDED.batch(torch.tensor(users), 1, DRAWS)
    names = ("items", "labels", "mask", "rows", "row_counts", "row_mask", "slots")
    more_padding: dict[str, Any] = {name: torch.nn.functional.pad(getattr(batch, name), (0, wider)) for name in names}
    padded = replace(batch, **more_padding)
    steps, more = list(batch.steps(size, 1, DRAWS, 2)), list(padded.steps(size, 1, DRAWS, 2))
    assert not any(weights.any() for weights in more[len(steps) :])
    for weights, same in zip(steps, more, strict=False):
        torch.testing.assert_close(same[:, : weights.shape[1]], weights)
    for client, user in enumerate(users):
        alone = CROWDED.batch(torch.tensor([user]), 1, DRAWS)
        for number, weights in enumerate(alone.steps(size, 1, DRAWS, 2)):
            torch.testing.assert_close(steps[number][client, : weights.shape[1]], weights[0])


def test_epochs_and_rounds_shuffle_afresh() -> None:
    batch = CROWDED.batch(torch.arange(10), 0, DRAWS)
    firsts = [next(batch.steps(8, t, DRAWS, epoch)) for t, epoch in ((0, 0), (0, 1), (1, 0))]
    assert not any(torch.equal(firsts[a], firsts[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert torch.equal(firsts[0], next(batch.steps(8, 0, DRAWS)))


@settings(max_examples=25, deadline=None)
@given(subsets, st.integers(1, 6), st.integers(0, 20))
def test_triples(users: list[int], k: int, round: int) -> None:
    batch = Federation(SPLIT, SamplingSettings(k)).batch(torch.tensor(users), round, DRAWS)
    positive, negative, mask = batch.triples(round, DRAWS)
    for client, user in enumerate(users):
        drawn, against = (batch.rows[client][slots[client][mask[client]]].tolist() for slots in (positive, negative))
        groups = np.array(own(batch, client)["items"]).reshape(-1, 1 + k)
        assert set(drawn) <= set(training_items(SPLIT, user))
        assert against == groups[:, 1].tolist()
        alone = Federation(SPLIT, SamplingSettings(k)).batch(torch.tensor([user]), round, DRAWS)
        own_positive, own_negative, own_mask = alone.triples(round, DRAWS)
        assert own_mask.all()
        assert (alone.rows[0][own_positive[0]].tolist(), alone.rows[0][own_negative[0]].tolist()) == (drawn, against)


def test_positives_of_triples_are_drawn_with_replacement() -> None:
    batch = Federation(SPLIT).batch(torch.arange(10), 0, DRAWS)
    first, later = (batch.triples(t, DRAWS) for t in (0, 1))
    drawn = [first[0][client][first[2][client]].tolist() for client in range(10)]
    assert any(len(set(slots)) < len(slots) for slots in drawn)
    assert not torch.equal(first[0], later[0])


def test_negatives_that_are_not_drawn_anew() -> None:
    ids = torch.arange(10)
    fixed = Federation(SPLIT, SamplingSettings(redraw=False))
    first, later = fixed.batch(ids, 0, DRAWS), fixed.batch(ids, 7, DRAWS)
    assert torch.equal(first.items, later.items)
    assert torch.equal(first.items, Federation(SPLIT).batch(ids, 0, DRAWS).items)
    assert not torch.equal(next(first.steps(8, 0, DRAWS)), next(later.steps(8, 7, DRAWS)))  # mini-batches differ


@pytest.mark.parametrize("k", [1, 4])
def test_repeats_train_on_every_row(k: int) -> None:
    ids = torch.arange(10)
    federation = Federation(SPLIT, SamplingSettings(k, repeats=True))
    batch = federation.batch(ids, 3, DRAWS)
    assert torch.equal(federation.n_examples(ids), batch.n_examples)
    assert int(batch.n_examples.sum()) > int(Federation(SPLIT, SamplingSettings(k)).n_examples(ids).sum())
    for client in range(10):
        part = own(batch, client)
        groups = np.array(part["items"]).reshape(-1, 1 + k)
        counts = dict(zip(part["rows"], part["row_counts"], strict=True))
        for item in training_items(SPLIT, client):
            assert groups[:, 0].tolist().count(item) == counts[item] >= 1
        assert len(groups) == sum(counts.values())
        assert part["labels"] == ([1.0] + [0.0] * k) * len(groups)
        assert all(len(set(group)) == 1 + k for group in groups)
        twice = [group[1:].tolist() for group in groups if counts[group[0]] > 1]
        assert not twice or len({tuple(found) for found in twice}) > 1  # every row has negatives of its own
