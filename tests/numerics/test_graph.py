"""Similarities of tables and smoothing over neighbours against loops."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedrecgel.numerics.graph import Smoother, cosines, cosines_of_rows, projected


def projected_cosines(blocks: Iterable[Tensor], width: int, generator: np.random.Generator) -> Tensor:
    return cosines_of_rows(projected(blocks, width, generator))


def tables_of(n: int, items: int, dim: int = 3, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, items, dim)))


@given(n=st.integers(1, 6), items=st.integers(1, 9), size=st.integers(1, 9), seed=st.integers(0, 99))
@settings(deadline=None)
def test_cosines_of_whole_tables_in_blocks(n: int, items: int, size: int, seed: int) -> None:
    tables = tables_of(n, items, seed=seed)
    found = cosines(torch.split(tables, size, dim=1))
    for a in range(n):
        for b in range(n):
            wanted = cosine_similarity(tables[a].flatten(), tables[b].flatten(), dim=0)
            assert found[a, b] == pytest.approx(float(wanted), abs=1e-12)


def test_cosines_of_tables_much_alike() -> None:
    """In single precision, the order of users whose tables differ by little is the one of exact arithmetic."""
    generator = np.random.default_rng(0)
    common, own = generator.normal(size=(2000, 8)), generator.normal(size=(6, 2000, 8))
    steps = np.array([1.0, 1.1, 1.3, 1.6, 2.0, 2.5])
    tables = torch.from_numpy(common + 1e-3 * steps[:, None, None] * own).float()
    found, exact = cosines([tables]), cosines([tables.double()])
    assert torch.equal(found.argsort(1), exact.argsort(1))
    assert torch.equal(found > found.mean(), exact > exact.mean())


def test_no_tables_are_refused_and_zero_tables_are_like_nothing() -> None:
    assert torch.equal(cosines([torch.zeros(2, 3, 2)]), torch.zeros(2, 2, dtype=torch.float64))
    for function in (cosines, lambda blocks: projected_cosines(blocks, 4, np.random.default_rng(0))):
        with pytest.raises(ValueError, match="at least one"):
            function([])


def test_projections_keep_angles_and_do_not_depend_on_blocks() -> None:
    """An approximation: the error of a cosine is about 1/√width."""
    tables = tables_of(5, 400)
    tables[1] = tables[0] + 0.3 * tables[1]
    exact, width = cosines([tables]), 256
    found = [
        projected_cosines(torch.split(tables, size, dim=1), width, np.random.default_rng(4)) for size in (400, 50, 7, 1)
    ]
    assert 0 < float((found[0] - exact).abs().max()) < 5 / width**0.5
    assert all(torch.allclose(other, found[0], atol=1e-12) for other in found[1:])
    assert torch.allclose(found[0].diagonal(), torch.ones(5, dtype=torch.float64))


def test_projections_are_unbiased() -> None:
    """Averaged over many draws, inner products of projections are inner products."""
    tables = tables_of(2, 10)
    tables /= tables.flatten(1).norm(dim=1)[:, None, None]
    draws = [projected_cosines([tables], 64, np.random.default_rng(seed))[0, 1] for seed in range(400)]
    assert float(torch.stack(draws).mean()) == pytest.approx(float(cosines([tables])[0, 1]), abs=0.03)


@given(n=st.integers(1, 7), factor=st.sampled_from([0.0, 0.5, 1.0, 1.5, 50.0]), seed=st.integers(0, 99))
@settings(deadline=None)
def test_above_mean_is_the_mean_over_those_above(n: int, factor: float, seed: int) -> None:
    tables = tables_of(n, 2, seed=seed)
    similarity = cosines([tables])
    found = Smoother.above_mean(similarity, factor)(tables)
    bar = factor * float(similarity.mean())
    for user in range(n):
        linked = [other for other in range(n) if float(similarity[user, other]) > bar] or [user]
        wanted = sum((tables[other] for other in linked), torch.zeros_like(tables[0])) / len(linked)
        assert torch.allclose(found[user], wanted)


@given(n=st.integers(1, 7), k=st.integers(1, 9), seed=st.integers(0, 99))
@settings(deadline=None)
def test_k_nearest_is_the_mean_over_the_nearest(n: int, k: int, seed: int) -> None:
    tables = tables_of(n, 2, seed=seed)
    similarity = cosines([tables])
    found = Smoother.k_nearest(similarity, k)(tables)
    for user in range(n):
        linked = sorted(range(n), key=lambda other: -float(similarity[user, other]))[:k]
        assert user in linked, "with similarities oneself is nearest"
        wanted = sum((tables[other] for other in linked), torch.zeros_like(tables[0])) / len(linked)
        assert torch.allclose(found[user], wanted)


def test_nobody_strictly_above_the_mean_leaves_tables_alone() -> None:
    tables = tables_of(3, 2)
    assert torch.equal(Smoother.above_mean(torch.ones(3, 3, dtype=torch.float64), 1.0)(tables), tables)
