"""The fits on uploads, blocked and sparse, equal the definitions in float64; scores are those of the fitted model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.run import run
from fedrecgel.methods.base import Method
from fedrecgel.methods.ease import EASE
from fedrecgel.methods.gfcf import GFCF
from fedrecgel.methods.ials import IALS
from fedrecgel.methods.itemknn import ItemKNN
from fedrecgel.methods.messages import Server
from fedrecgel.numerics import counts
from tests.builders import engine_of, problem_of, random_split
from tests.oracles import centralised as oracle

TOLERANCE = 1e-10
FEW_USERS, MANY_USERS = random_split(12, 150), random_split(160, 130)
both = pytest.mark.parametrize("split", [FEW_USERS, MANY_USERS], ids=["few users", "many users"])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that do not divide the catalogue."""
    monkeypatch.setattr(counts, "BLOCK", 37)


def fitted(method: Method, split: Split, rounds: int = 1) -> tuple[Server, Tensor]:
    """The server after some rounds, and everybody's scores of the whole catalogue."""
    engine, draws, everyone = engine_of(method, split), Draws(0), torch.arange(split.n_users)
    start = method.init_server(problem_of(split), draws)
    server = list(run(method, engine, start, rounds, draws))[-1].server
    down = method.broadcast(server, everyone)
    items = torch.arange(split.n_items).expand(split.n_users, -1)
    return server, method.score(engine.store.read(everyone), down, engine.federation.history(everyone), items)


def assert_close(found: Tensor, wanted: oracle.Matrix) -> None:
    assert float((found - torch.from_numpy(wanted)).abs().max()) <= TOLERANCE * (1 + np.abs(wanted).max())


@both
@pytest.mark.parametrize("shrinkage", [0.0, 7.5])
def test_itemknn_with_all_neighbours(split: Split, shrinkage: float) -> None:
    _, scores = fitted(ItemKNN(neighbours=1000, shrinkage=shrinkage), split)
    met = oracle.counts(split)
    assert_close(scores, (met > 0) @ oracle.cosines(met, shrinkage))


@both
def test_itemknn_keeps_the_nearest(split: Split) -> None:
    """Which of equally similar items are kept is open, so similarities are compared, not numbers of items."""
    server, scores = fitted(ItemKNN(neighbours=5, shrinkage=1.0), split)
    met = oracle.counts(split)
    similar, near = oracle.cosines(met, 1.0), server.shared["neighbours"].numpy()
    assert_close(server.shared["similarity"], -np.sort(-similar, axis=1)[:, :5])
    assert_close(server.shared["similarity"], np.take_along_axis(similar, near, axis=1))
    kept = np.zeros_like(similar)
    np.put_along_axis(kept, near, np.take_along_axis(similar, near, axis=1), axis=1)
    assert_close(scores, (met > 0) @ kept)


@both
@pytest.mark.parametrize("reg", [0.5, 40.0])
def test_ease_is_the_ridge_regression_on_all_other_items(split: Split, reg: float) -> None:
    server, scores = fitted(EASE(reg=reg), split)
    met = oracle.counts(split)
    weights = oracle.regressions(met, reg)
    assert_close(server.shared["weights"], weights)
    assert (server.shared["weights"].diagonal() == 0).all()
    assert_close(scores, (met > 0) @ weights)


@both
@pytest.mark.parametrize("nu", [0.0, 0.5, 1.0])
def test_ials_solves_one_side_after_the_other(split: Split, nu: float) -> None:
    method = IALS(dim=6, reg=0.3, alpha=4.0, nu=nu, iterations=3)
    server, scores = fitted(method, split, rounds=2)
    met, item = oracle.counts(split), method.init_server(problem_of(split), Draws(0)).shared["item"].numpy()
    for _ in range(6):
        user = oracle.least_squares(met, item, 4.0, 0.3, nu)
        item = oracle.least_squares(met.T, user, 4.0, 0.3, nu)
    assert_close(server.shared["item"], item)
    assert_close(scores, oracle.least_squares(met, item, 4.0, 0.3, nu) @ item.T)


def test_ials_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    method = IALS(dim=6, iterations=2)
    _, together = fitted(method, MANY_USERS)
    monkeypatch.setattr("fedrecgel.methods.ials.CHUNK", 1)
    _, alone = fitted(method, MANY_USERS)
    assert_close(together, alone.numpy())


def test_every_turn_of_ials_lowers_the_loss() -> None:
    """At ν = 0 the objective is Eq. 3; a step of either side in the wrong direction would raise it."""
    met, item = oracle.counts(MANY_USERS), np.random.default_rng(0).normal(0, 0.1, (MANY_USERS.n_items, 4))
    method, losses = IALS(dim=4, reg=2.0, alpha=5.0, nu=0.0), []
    rows, columns = torch.from_numpy(met).nonzero(as_tuple=True)
    seen = counts.CountMatrix.from_entries(rows, columns, torch.from_numpy(met[met > 0]), (len(met), met.shape[1]))
    fixed = torch.from_numpy(item)
    for _ in range(3):
        user = method.solve(fixed, fixed.mT @ fixed, seen)
        losses.append(oracle.weighted_loss(met, user.numpy(), fixed.numpy(), 5.0, 2.0))
        fixed = method.solve(user, user.mT @ user, seen.transpose())
        losses.append(oracle.weighted_loss(met, user.numpy(), fixed.numpy(), 5.0, 2.0))
    assert all(after < before for before, after in pairwise(losses))


@both
@pytest.mark.parametrize("degree", [0.25, 0.5])
@pytest.mark.parametrize("dim", [5, 1000])
def test_gfcf_is_the_sum_of_two_filters(split: Split, dim: int, degree: float) -> None:
    server, scores = fitted(GFCF(dim=dim, ideal=0.7, degree=degree), split)
    met = oracle.counts(split)
    both_filters = oracle.low_pass(met, dim, 0.7, degree)
    assert_close(server.shared["filter"], both_filters)
    assert_close(scores, (met > 0) @ both_filters)


@both
def test_older_items_fade(split: Split) -> None:
    met, decay = oracle.counts(split), 0.6
    faded = oracle.faded(split, decay)
    assert_close(fitted(EASE(reg=20.0, decay=decay), split)[1], faded @ oracle.regressions(met, 20.0))
    everyone = ItemKNN(neighbours=1000, shrinkage=2.0, decay=decay)
    assert_close(fitted(everyone, split)[1], faded @ oracle.cosines(met, 2.0))
    assert_close(fitted(GFCF(dim=5, decay=decay), split)[1], faded @ oracle.low_pass(met, 5, 0.3, 0.5))
    server, scores = fitted(IALS(dim=6, iterations=2, decay=decay), split)
    item = server.shared["item"].numpy()
    assert_close(scores, oracle.least_squares(met * faded, item, 30.0, 0.03, 1.0) @ item.T)
