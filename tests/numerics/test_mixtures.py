"""Ranks of mixtures on scores made by hand, and what they gain."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.numerics import mixtures
from fedrecgel.numerics.mixtures import GRID, GRID_WITH_PAIRS, choose_best, gain, ranks_of_mixtures
from fedrecgel.numerics.own_rows import OwnRows


def ranks(scores: torch.Tensor, weights: list[list[float]], target: int, own: OwnRows) -> list[float]:
    """Of one client."""
    return ranks_of_mixtures(scores[:, None].clone(), torch.tensor(weights), torch.tensor([target]), own)[0].tolist()


def test_ranks_among_items_that_are_not_known() -> None:
    scores = torch.tensor([[5.0, 4, 3, 2, 1, 0], [0, 0, 9, 9, 9, 9]])
    own = OwnRows(torch.tensor([[0, 3]]), torch.tensor([[1.0, 0.0]]), None)  # 3 is padding or held back
    assert ranks(scores, [[1.0, 0], [0, 1], [0.5, 0.5]], 3, own) == [2, 1.5, 1]


def test_almost_equal_scores_tie() -> None:
    own = OwnRows(torch.tensor([[0]]), torch.tensor([[0.0]]), None)
    assert ranks(torch.arange(40.0)[None], [[1.0]], 29, own) == [10]
    assert ranks(1e-6 * torch.arange(3.0)[None], [[1.0]], 0, own) == [1]


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(12, 40))
@settings(max_examples=30, deadline=None)
def test_ranks_are_those_of_a_loop(seed: int, n_clients: int, n_items: int) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(-3, 4, (3, n_clients, n_items)).astype(float))
    weights, target = torch.from_numpy(rng.integers(1, 4, (7, 3)).astype(float)), torch.zeros(n_clients).long()
    own = OwnRows(
        torch.arange(1, 5).expand(n_clients, -1), torch.from_numpy(rng.integers(0, 2, (n_clients, 4)) + 0.0), None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixtures, "MIXED_AT_ONCE", int(rng.integers(1, 1000)))
        found = ranks_of_mixtures(scores.clone(), weights, target, own)
    for client, mixture in np.ndindex(n_clients, 7):
        mixed = weights[mixture] @ scores[:, client]
        known = {int(item) for item, x in zip(own.items[client], own.x[client], strict=True) if x}
        others = [float(mixed[item] - mixed[0]) for item in range(1, n_items) if item not in known]
        assert found[client, mixture] == sum(1.0 if gap > 0 else 0.5 * (gap == 0) for gap in others)


def test_what_a_rank_gains_is_ndcg_in_the_catalogue_and_on_average_among_candidates() -> None:
    rng, n_others, rank = np.random.default_rng(0), 400, 12
    above = (rng.random((20_000, 99)) < rank / n_others).sum(1)
    sampled = np.where(above < 10, 1 / np.log2(above + 2), 0).mean()
    found = gain(torch.tensor([[rank, 3.0, 0.0, 400.0]]), torch.tensor([[float(n_others)]]))[0]
    assert found[0] == pytest.approx(sampled, abs=0.01)
    assert found[1] > 1 / log2(5) + found[0]
    assert found[2:].tolist() == [2, 0]


def test_the_first_of_equals_wins() -> None:
    assert choose_best(torch.tensor([1.0, 3.0, 3.0 + 1e-7, 2.0])) == 1
    assert choose_best(torch.zeros(4)) == 0


def test_no_mixture_stands_in_the_grid_twice() -> None:
    assert len(set(GRID)) == len(GRID)
    assert len(set(GRID_WITH_PAIRS)) == len(GRID_WITH_PAIRS)
    assert GRID[0]._replace(pairs=0.0) == GRID_WITH_PAIRS[0]
