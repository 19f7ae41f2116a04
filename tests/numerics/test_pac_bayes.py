from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.numerics.pac_bayes import (
    Bound,
    admissible_sigma,
    gaussian_reach,
    lemma2,
    regulariser,
    regulariser_slope,
    regulariser_slopes,
)

counts = st.integers(1, 10_000)
SETTING: dict[str, Any] = {"n_parameters": 40, "n_records": 900, "sigma": 0.3}


def eq8(theta: torch.Tensor, n: int, sigma: float, gamma: float, bound: float) -> torch.Tensor:
    """Eq. 8 as printed."""
    t = theta.numel()
    spread = t / 2 * torch.log(1 + theta.square().sum() / (t * sigma**2))
    return (0.5 + spread + math.log(1 / gamma) + 6 * math.log(n + t) + bound**2 / 8) / math.sqrt(n)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50), counts, st.floats(1e-3, 10), st.floats(0.001, 0.999), st.floats(0, 20), st.integers(0, 99))
def test_regulariser_and_its_gradient(t: int, n: int, sigma: float, gamma: float, bound: float, seed: int) -> None:
    theta = torch.randn(t, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()
    expected = eq8(theta, n, sigma, gamma, bound)
    squared = float(theta.detach().square().sum())
    sizes: dict[str, Any] = {"n_parameters": t, "n_records": n, "sigma": sigma}
    assert regulariser(squared, gamma=gamma, loss_bound=bound, **sizes) == pytest.approx(expected.item(), rel=1e-10)
    expected.backward()  # type: ignore[no-untyped-call]
    assert theta.grad is not None
    slope = regulariser_slope(squared, **sizes)
    torch.testing.assert_close(slope * theta.detach(), theta.grad, rtol=1e-9, atol=1e-12)


def test_slopes_of_clients() -> None:
    generator = torch.Generator().manual_seed(0)
    shared = [torch.randn(4, 3, generator=generator).double(), torch.randn(1, 5, generator=generator).double()]
    user = torch.randn(3, 6, generator=generator).double()
    records = torch.tensor([5, 50, 500])
    found = regulariser_slopes(shared, user, records, 0.2, 0.1)
    for client, n in enumerate(records.tolist()):
        squared = sum(float(value.square().sum()) for value in (*shared, user[client]))
        sigma = admissible_sigma(0.2, 0.1, n_shared=17, n_private=6, n_records=n)
        expected = regulariser_slope(squared, n_parameters=23, n_records=n, sigma=sigma)
        assert float(found[client]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [1, 3, 40, 500])
@pytest.mark.parametrize("n_records", [4, 25, 400])
def test_gaussian_noise_stays_within_reach(size: int, n_records: int) -> None:
    """P(‖ε‖ > σ r) ≤ 1/√N, measured on 4,000 vectors; five standard errors of room."""
    noise = np.random.default_rng(size + n_records).normal(size=(4000, size))
    beyond = float((np.linalg.norm(noise, axis=1) > gaussian_reach(size, n_records)).mean())
    allowed = 1 / math.sqrt(n_records)
    assert beyond <= allowed + 5 * math.sqrt(allowed * (1 - allowed) / 4000)
    assert gaussian_reach(size, n_records) < math.sqrt(size) + 2 * math.sqrt(math.log(n_records))  # not just anything


def test_admissible_sigma_is_the_smaller_limit() -> None:
    co, ur = gaussian_reach(1000, 64), gaussian_reach(10, 64)
    sizes: dict[str, Any] = {"n_shared": 1000, "n_private": 10, "n_records": 64}
    assert admissible_sigma(co, 5 * ur, **sizes) == pytest.approx(1.0)
    assert admissible_sigma(5 * co, ur / 2, **sizes) == pytest.approx(0.5)
    assert admissible_sigma(0.0, ur, **sizes) == pytest.approx(1.0)
    assert admissible_sigma(co / 4, 0.0, **sizes) == pytest.approx(0.25)
    assert admissible_sigma(0.0, 0.0, **sizes) == 0


def test_lemma_2_adds_what_escapes_the_balls() -> None:
    """Each of the two Gaussians leaves its ball with probability 1/√N: 1 - (1 - 1/√N)² = 2/√N - 1/N."""
    f = regulariser(2.0, gamma=0.05, loss_bound=3.0, **SETTING)
    bound = lemma2(0.4, 2.0, gamma=0.05, loss_bound=3.0, **SETTING)
    assert bound.worst_case_loss == 0.4
    assert bound.value == pytest.approx(0.4 + f + 1 - (1 - 1 / 30) ** 2)
    assert lemma2(0.4, 2.0, gamma=0.01, loss_bound=3.0, **SETTING).value > bound.value
    assert lemma2(0.4, 9.0, gamma=0.05, loss_bound=3.0, **SETTING).value > bound.value


def test_vacuous() -> None:
    assert Bound(0.5, 0.6, 1.0).vacuous
    assert Bound(0.5, 0.5, 1.0).vacuous
    assert not Bound(0.5, 0.4, 1.0).vacuous
