"""A sketch of pairs beside the exact table."""

from __future__ import annotations

import torch
from tests.builders import random_split

from fedrecgel.data.history import History
from fedrecgel.numerics.own_rows import OwnRows
from fedrecgel.numerics.pair_sketch import PairSketch

SPLIT = random_split(40, 60, candidates=20)
OWN = OwnRows.of(History(SPLIT.train, torch.arange(40)), torch.float64)
X = torch.zeros(40, 60, dtype=torch.float64).scatter_add_(1, OWN.items, OWN.x)
EXACT = (X.mT @ X).fill_diagonal_(0)
EVERYTHING = torch.arange(60)


def sketched(width: int) -> torch.Tensor:
    """All pairs, put into a table and read from it."""
    sketch = PairSketch(X.sum(0)[:, None], width)
    rows = sketch.rows(OWN, OWN.x)
    table = torch.zeros(60, width, dtype=torch.float64).index_add_(0, OWN.items.flatten(), rows.flatten(0, 1))
    return sketch.read(table, EVERYTHING, EVERYTHING)


def test_with_much_room_hardly_a_pair_is_lost() -> None:
    wrong = (sketched(8192) != EXACT).double().mean()
    assert wrong < 0.02


def test_a_small_table_errs_but_not_to_one_side() -> None:
    errors = torch.stack([sketched(width) - EXACT for width in range(20, 60)])
    assert float(errors.abs().mean()) > 0.1
    assert abs(float(errors.mean())) < 0.05 * float(EXACT.mean())
    assert float(errors.square().mean()) < float(EXACT.square().mean())


def test_a_pair_has_one_place() -> None:
    found = sketched(16)
    assert torch.equal(found, found.mT)
    assert not found.diagonal().any()
