from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.models.linear import alternate, linear_scores, linear_start

sizes = st.integers(1, 4)


def test_linear_start_is_that_of_torch() -> None:
    ours = linear_start(32, (20_000,), np.random.default_rng(0))
    torch.manual_seed(0)
    theirs = torch.nn.Linear(32, 625).weight.detach().flatten()
    assert abs(ours).max() <= 32**-0.5
    for share in (0.1, 0.5, 0.9):
        assert abs(np.quantile(ours, share) - float(theirs.quantile(share))) < 0.01
    assert linear_start(4, (2, 3), np.random.default_rng(0)).shape == (2, 3)


@settings(max_examples=25, deadline=None)
@given(sizes, sizes, sizes, st.integers(0, 999))
def test_linear_scores(n_clients: int, n_rows: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n_clients, n_rows, dim, generator=generator, dtype=torch.float64)
    w = torch.randn(n_clients, dim, generator=generator, dtype=torch.float64)
    b = torch.randn(n_clients, generator=generator, dtype=torch.float64)
    wanted = torch.stack([rows[c] @ w[c] + b[c] for c in range(n_clients)])
    torch.testing.assert_close(linear_scores(rows, w, b), wanted, rtol=1e-12, atol=1e-14)


@settings(max_examples=25, deadline=None)
@given(sizes, sizes, sizes, st.integers(0, 999))
def test_alternate_steps_the_layer_then_looks_at_the_items(n_clients: int, n_rows: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n_clients, n_rows, dim, generator=generator, dtype=torch.float64)
    layer = torch.randn(n_clients, dim + 1, generator=generator, dtype=torch.float64)
    labels = (torch.rand(n_clients, n_rows, generator=generator) < 0.5).double()
    weights = torch.rand(n_clients, n_rows, generator=generator, dtype=torch.float64)
    weights[0] = 0  # a client that has run out of batches
    found = alternate(rows, layer[:, :-1], layer[:, -1], labels, weights, lr=0.7, saturating=False)
    for c in range(n_clients):
        w, b, e = (part.clone().requires_grad_() for part in (layer[c, :-1], layer[c, -1], rows[c]))

        def loss() -> torch.Tensor:
            return binary_cross_entropy_with_logits(e @ w + b, labels[c], weights[c], reduction="sum")  # noqa: B023

        first = loss()
        w_gradient, b_gradient = torch.autograd.grad(first, (w, b))
        with torch.no_grad():
            w -= 0.7 * w_gradient
            b -= 0.7 * b_gradient
        (gradient,) = torch.autograd.grad(loss(), e)
        for ours, theirs in zip(found, (first, w, b, gradient), strict=True):
            torch.testing.assert_close(ours[c], theirs.detach(), rtol=1e-12, atol=1e-13)
    assert torch.equal(found.w[0], layer[0, :-1])
    assert not found.rows[0].any()
