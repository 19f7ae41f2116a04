"""NDCG of mixtures on rankings made by hand."""

from __future__ import annotations

from math import log2

import pytest
import torch

from fedrecgel.numerics.mixtures import GRID, GRID_WITH_PAIRS, choose_best, ndcg_of_mixtures
from fedrecgel.numerics.own_rows import OwnRows


def test_ranks_among_items_that_are_not_known() -> None:
    first, second = torch.tensor([5.0, 4, 3, 2, 1, 0]), torch.tensor([0.0, 0, 9, 9, 9, 9])
    scores = torch.stack([first, second])[None]
    own = OwnRows(torch.tensor([[0, 3]]), torch.tensor([[1.0, 0.0]]), None)  # 3 is padding or held back
    found = ndcg_of_mixtures(scores, torch.tensor([[1.0, 0], [0, 1], [-1, 0]]), torch.tensor([3]), own)
    one_above_one_tied = 1 / log2(3.5)
    assert found[0].tolist() == pytest.approx([1 / log2(4), one_above_one_tied, 1 / log2(4)])


def test_almost_equal_scores_tie_and_rank_11_counts_nothing() -> None:
    own = OwnRows(torch.tensor([[0]]), torch.tensor([[0.0]]), None)
    scores = torch.arange(40.0)[None, None]
    assert ndcg_of_mixtures(scores, torch.ones(1, 1), torch.tensor([29]), own).item() == 0
    assert ndcg_of_mixtures(scores, torch.ones(1, 1), torch.tensor([30]), own).item() == pytest.approx(1 / log2(11))
    alike = 1e-6 * scores[:, :, :3]
    assert ndcg_of_mixtures(alike, torch.ones(1, 1), torch.tensor([0]), own).item() == pytest.approx(1 / log2(3))


def test_the_first_of_equals_wins() -> None:
    assert choose_best(torch.tensor([1.0, 3.0, 3.0 + 1e-7, 2.0])) == 1
    assert choose_best(torch.zeros(4)) == 0


def test_no_mixture_stands_in_the_grid_twice() -> None:
    assert len(set(GRID)) == len(GRID)
    assert len(set(GRID_WITH_PAIRS)) == len(GRID_WITH_PAIRS)
    assert GRID[0]._replace(pairs=0.0) == GRID_WITH_PAIRS[0]
