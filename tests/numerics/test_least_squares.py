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
SOLVER = LeastSquares(reg=0.1, alpha=20.0)
WEIGHTS = OWN.weigh(0.3)
X = torch.zeros(40, 60, dtype=torch.float64).scatter_add_(1, OWN.items, OWN.x)
W = torch.zeros(40, 60, dtype=torch.float64).scatter_add_(1, OWN.items, WEIGHTS)


def loss(users: torch.Tensor, items: torch.Tensor) -> float:
    return float(loss_tensor(users, items))


def loss_tensor(users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
    error = (1 + SOLVER.alpha * W) * (X - users @ items.mT).square()
    user_side = (60 + SOLVER.alpha * W.sum(1)) @ users.square().sum(1)
    item_side = (40 + SOLVER.alpha * W.sum(0)) @ items.square().sum(1)
    return error.sum() + SOLVER.reg * (user_side + item_side)


def after_a_round(items: torch.Tensor, step: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    users, y = SOLVER.fold_in(OWN, WEIGHTS, items, items.mT @ items)
    rows = SOLVER.targets(OWN, WEIGHTS, users, y)
    targets = torch.zeros_like(items).index_add_(0, OWN.items.flatten(), rows.flatten(0, 1))
    sums = targets, users.mT @ users, (WEIGHTS.sum(1)[:, None] * users).mT @ users
    return users, SOLVER.step_items(items, W.sum(0)[:, None], sums, 40.0, step)


def test_every_round_lowers_the_loss() -> None:
    items = 0.3 * torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(15):
        users, following = after_a_round(items)
        losses += [loss(users, items), loss(users, following)]
        items = following
    assert all(after < before for before, after in pairwise(losses))


def test_a_step_is_the_gradient_of_the_loss_before_its_matrix() -> None:
    """So it rests where the items' gradient is 0, which is their exact solution."""
    items = 0.3 * torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    users, following = after_a_round(items, step=0.5)
    free = items.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_tensor(users, free), free)
    gram = users.mT @ users
    typical = (WEIGHTS.sum(1)[:, None] * users).mT @ users / WEIGHTS.sum()
    for item in range(60):
        heavy = SOLVER.alpha * W[:, item].sum()
        left = gram + heavy * typical + SOLVER.reg * (40 + heavy) * torch.eye(4, dtype=torch.float64)
        torch.testing.assert_close(left @ (following - items)[item], -0.5 * gradient[item] / 2)


def test_a_user_is_solved_exactly() -> None:
    items = 0.3 * torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    users, _ = SOLVER.fold_in(OWN, WEIGHTS, items, items.mT @ items)
    free = users.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_tensor(free, items), free)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-9)
