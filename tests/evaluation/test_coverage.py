"""Catalogue coverage beside every order of equal scores."""

from __future__ import annotations

from itertools import permutations, product

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
