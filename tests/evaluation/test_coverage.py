"""Catalogue coverage beside every order of equal scores."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.evaluation.coverage import Coverage


def over_all_orders(rows: list[list[int]], left_out: list[list[bool]], k: int) -> float:
    """Every client breaks its ties in every order, independently of the others."""
    lists = []
    for row, out in zip(rows, left_out, strict=True):
        items = [item for item in range(len(row)) if not out[item]]
        worth = [-score for score in row]
        lists.append([sorted(order, key=worth.__getitem__)[:k] for order in permutations(items)])
    chosen = [len(set().union(*choice)) / len(rows[0]) for choice in product(*lists)]
    return sum(chosen) / len(chosen)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=2),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.integers(1, 5),
)
def test_against_every_order(rows: list[list[int]], out: list[bool], k: int) -> None:
    left_out = [out[4 * client : 4 * client + 4] for client in range(len(rows))]
    lists = Coverage(4, (k,))
    for row, mask in zip(rows, left_out, strict=True):  # a client a block
        lists.add(lists.shown(torch.tensor([row]).float(), torch.tensor([mask])))
    assert lists.result()[f"Coverage@{k}"] == pytest.approx(over_all_orders(rows, left_out, k), abs=1e-12)


def test_all_clients_at_once_and_several_cut_offs() -> None:
    scores = torch.rand(50, 30, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros_like(scores, dtype=torch.bool)
    lists = Coverage(30, (5, 1))
    lists.add(lists.shown(scores, mask))
    shown = {k: len(set(scores.topk(k).indices.flatten().tolist())) / 30 for k in (1, 5)}
    assert lists.result() == pytest.approx({"Coverage@1": shown[1], "Coverage@5": shown[5]})


def test_places_of_the_popular_tenth() -> None:
    """Of 20 items two are popular; for the second there are two that tie, so each counts for a half."""
    trained = np.array([9, 5, 5, *[1] * 17])
    scores = torch.zeros(3, 20)
    scores[:, 0], scores[:, 1], scores[:2, 7], scores[2, 8] = 4, 3, 2, 2
    lists = Coverage(20, (1, 3))
    lists.add(lists.shown(scores, torch.zeros_like(scores, dtype=torch.bool)))
    found = lists.popular(trained)
    assert found == pytest.approx({"clicks": (9 + 5) / 36, "Popular@1": 1.0, "Popular@3": 1.5 / 3})


def test_places_are_counted_by_expectation() -> None:
    """A constant scorer gives the popular tenth a tenth of the places, however popular it is."""
    scores = torch.zeros(4, 30)
    lists = Coverage(30, (5,))
    lists.add(lists.shown(scores, torch.zeros_like(scores, dtype=torch.bool)))
    assert lists.popular(np.arange(30))["Popular@5"] == pytest.approx(0.1)
