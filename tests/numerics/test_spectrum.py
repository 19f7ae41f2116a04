"""Eigenvectors from a product, and scores standardised without computing them."""

from __future__ import annotations

import torch

from fedrecgel.numerics.spectrum import Spread, nearest_gram, nystrom, orthonormal


def table(n: int, k: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, k, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_matrix_of_low_rank_is_found_exactly() -> None:
    wanted, values = orthonormal(table(30, 4)), torch.tensor([9.0, 4, 2, 1], dtype=torch.float64)
    matrix = wanted * values @ wanted.mT
    basis = orthonormal(table(30, 4, seed=1))
    vectors, found = nystrom(matrix @ basis, basis)
    torch.testing.assert_close(found, values)
    torch.testing.assert_close((vectors.mT @ wanted).abs(), torch.eye(4, dtype=torch.float64))
    assert (vectors.pow(3).sum(0) >= 0).all()


def test_directions_that_are_not_there_stay_finite() -> None:
    one = table(20, 1)
    basis = orthonormal(table(20, 5, seed=1))
    vectors, values = nystrom(one @ (one.mT @ basis), basis)
    assert torch.isfinite(vectors).all()
    torch.testing.assert_close(values[0], one.square().sum())
    assert values[1] < 1e-6 * values[0]
    assert torch.isfinite(nystrom(torch.zeros(20, 5), basis.float())[1]).all()


def test_standardised_scores() -> None:
    rows, queries = table(50, 6), table(4, 6, seed=2)
    scaled, below = Spread.of(rows).standardise(queries)
    scores = queries @ rows.mT
    wanted = (scores - scores.mean(1, keepdim=True)) / scores.std(1, correction=0, keepdim=True)
    torch.testing.assert_close(scaled @ rows.mT - below, wanted)


def test_equal_scores_become_zero() -> None:
    rows = torch.ones(50, 3)
    scaled, below = Spread.of(rows).standardise(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]))
    assert not scaled.any()
    assert not below.any()


def test_a_noisy_gram_becomes_one_that_can_be_and_an_exact_one_stays() -> None:
    rows = table(40, 5)
    exact = rows.mT @ rows
    assert nearest_gram(exact) is exact
    found = nearest_gram(exact - 30 * torch.eye(5, dtype=torch.float64) + table(5, 5, seed=2))
    torch.testing.assert_close(found, found.mT)
    assert torch.linalg.eigvalsh(found)[0] > -1e-9
    torch.testing.assert_close(nearest_gram(torch.diag(torch.tensor([3.0, -1]))), torch.diag(torch.tensor([3.0, 0])))
