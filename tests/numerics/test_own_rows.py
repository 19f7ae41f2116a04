"""Own rows with and without the one held back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.builders import random_interactions

from fedrecgel.data.history import History
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws
from fedrecgel.numerics.own_rows import OwnRows


def test_a_single_row_is_not_held_back() -> None:
    sets = ItemSets.from_pairs(np.array([0, 1, 1], np.int32), np.array([4, 2, 7], np.int32), 2, 9)
    ids = torch.arange(2)
    own = OwnRows.of(History(sets, ids), torch.float64)
    held = own.choose_one(ids, Draws(0))
    assert held.sum(1).tolist() == [0, 1]
    assert own.without(held).m.tolist() == [1, 1]


def test_the_latest_row_is_held_back() -> None:
    split = random_interactions(6, 50).split(candidates=5)
    ids = torch.arange(6)
    own = OwnRows.of(History(split.train, ids), torch.float64)
    held = own.choose_one(ids, Draws(0))
    rest = own.without(held)
    assert own.later is not None
    assert rest.later is not None
    assert bool((own.later[held] == 0).all())
    for client in range(6):
        left = rest.later[client][rest.x[client] > 0].sort().values
        assert left.tolist() == list(range(len(left)))


def test_a_random_row_is_the_same_in_every_batch() -> None:
    split, draws = random_interactions(9, 50, timed=False).split(candidates=5), Draws(4)
    together = OwnRows.of(History(split.train, torch.arange(9)), torch.float64)
    chosen = together.items_at(together.choose_one(torch.arange(9), draws))
    for client in range(9):
        alone = OwnRows.of(History(split.train, torch.tensor([client])), torch.float64)
        assert alone.items_at(alone.choose_one(torch.tensor([client]), draws)).item() == chosen[client]


def test_recent_items_weigh_more() -> None:
    own = OwnRows(torch.tensor([[3, 1, 2]]), torch.ones(1, 3), torch.tensor([[0.0, 3.0, 1.0]]))
    assert own.fade(0.5)[0].tolist() == pytest.approx([1, 0.5, 2**-0.5])
    assert OwnRows(own.items, own.x, None).fade(0.5).tolist() == [[1, 1, 1]]


def test_items_of_a_long_history_weigh_less() -> None:
    x = torch.tensor([[1.0, 1, 1, 1], [1, 0, 0, 0]])
    own = OwnRows(torch.arange(4).expand(2, -1), x, torch.tensor([[0.0, 1, 2, 3], [0, 0, 0, 0]]))
    assert own.weigh().tolist() == [pytest.approx([4**-0.25] * 4), [1, 0, 0, 0]]
    assert own.weigh(1.0)[0].tolist() == pytest.approx([4**-0.25 / k for k in (1, 2, 3, 4)])
