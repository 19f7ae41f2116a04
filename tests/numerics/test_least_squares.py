"""Both sides of the factorisation go downhill on its objective, and stop where the exact solution is."""

from __future__ import annotations

from itertools import pairwise

import torch
from tests.builders import random_split

from fedrecgel.data.history import History
from fedrecgel.numerics.least_squares import LeastSquares
from fedrecgel.numerics.own_rows import OwnRows

SPLIT = random_split(40, 60, candidates=20)
OWN = OwnRows.of(History(SPLIT.train, torch.arange(40)), torch.float64)
SOLVER = LeastSquares(reg=0.05, alpha=20.0)
X = torch.zeros(40, 60, dtype=torch.float64).scatter_add_(1, OWN.items, OWN.x)


def loss(users: torch.Tensor, items: torch.Tensor) -> float:
    error = (1 + SOLVER.alpha * X) * (X - users @ items.mT).square()
    user_side = (60 + SOLVER.alpha * X.sum(1)) @ users.square().sum(1)
    item_side = (40 + SOLVER.alpha * X.sum(0)) @ items.square().sum(1)
    return float(error.sum() + SOLVER.reg * (user_side + item_side))


def after_a_round(items: torch.Tensor, step: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    users, y = SOLVER.fold_in(OWN, items, items.mT @ items)
    rows = SOLVER.targets(OWN, users, y)
    targets = torch.zeros_like(items).index_add_(0, OWN.items.flatten(), rows.flatten(0, 1))
    sums = targets, users.mT @ users, (OWN.m[:, None] * users).mT @ users
    return users, SOLVER.step_items(items, X.sum(0)[:, None], sums, 40.0, step)


def test_every_round_lowers_the_loss() -> None:
    items = 0.3 * torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(15):
        users, following = after_a_round(items)
        losses += [loss(users, items), loss(users, following)]
        items = following
    assert all(after < before for before, after in pairwise(losses))


def test_it_rests_where_items_are_solved_exactly() -> None:
    items = 0.3 * torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(400):
        users, items = after_a_round(items)
    for item in range(60):
        weights = 1 + SOLVER.alpha * X[:, item]
        penalty = SOLVER.reg * (40 + SOLVER.alpha * X[:, item].sum())
        left = users.mT @ (weights[:, None] * users) + penalty * torch.eye(4, dtype=torch.float64)
        wanted = torch.linalg.solve(left, users.mT @ (weights * X[:, item]))
        torch.testing.assert_close(items[item], wanted, rtol=1e-3, atol=1e-4)
