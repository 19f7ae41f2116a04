from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits, logsigmoid

from fedrecgel.numerics.losses import bce, bpr

shapes = st.tuples(st.integers(1, 4), st.integers(1, 6))


def drawn(shape: tuple[int, int], seed: int, scale: float = 3.0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels and weights, some of which are zero."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = (torch.rand(shape, generator=generator) < 0.4).double()
    weights = torch.rand(shape, generator=generator, dtype=torch.float64)
    return logits, labels, weights * (torch.rand(shape, generator=generator) < 0.8)


@settings(max_examples=30, deadline=None)
@given(shapes, st.integers(0, 999))
def test_bce_against_torch(shape: tuple[int, int], seed: int) -> None:
    logits, labels, weights = drawn(shape, seed)
    wanted = binary_cross_entropy_with_logits(logits.requires_grad_(), labels, weights, reduction="none").sum(1)
    (gradient,) = torch.autograd.grad(wanted.sum(), logits)
    for saturating in (False, True):  # nothing is saturated here
        loss, slope = bce(logits.detach(), labels, weights, saturating=saturating)
        torch.testing.assert_close(loss, wanted.detach(), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(slope, gradient, rtol=1e-12, atol=1e-14)


def published(logits: Tensor, label: float) -> Tensor:
    """The gradient of the released codes: cross-entropy of the outputs of a sigmoid, in float32."""
    s = logits.float().requires_grad_()
    losses = binary_cross_entropy(torch.sigmoid(s), torch.full_like(s, label), reduction="sum")
    (gradient,) = torch.autograd.grad(losses, s)
    return gradient


@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturating_bce_is_cross_entropy_of_single_precision_sigmoids(label: float, dtype: torch.dtype) -> None:
    """Both ends and the middle; between -27.6 and -40 the published gradient fades, ours is zero at once."""
    logits = torch.cat([torch.linspace(-90, -45, 50), torch.linspace(-27, 90, 400)]).to(dtype)[None]
    _, slope = bce(logits, torch.full_like(logits, label), torch.ones_like(logits), saturating=True)
    wanted = published(logits[0], label)
    torch.testing.assert_close(slope[0].float(), wanted, rtol=1e-3, atol=2e-7)
    assert (slope[0, :50] == 0).all()
    assert (slope[0][logits[0] > 17.5] == 0).all()


def test_without_saturation_an_example_far_off_still_pulls() -> None:
    logits, labels = torch.tensor([[60.0, -60.0]]), torch.tensor([[0.0, 1.0]])
    assert bce(logits, labels, torch.ones(1, 2))[1].tolist() == [[1.0, -1.0]]
    loss, slope = bce(logits, labels, torch.ones(1, 2), saturating=True)
    assert slope.tolist() == [[0.0, 0.0]]
    assert loss.tolist() == [120.0]  # the loss itself is that of logits


@settings(max_examples=30, deadline=None)
@given(shapes, st.integers(1, 8), st.integers(0, 999))
def test_bpr_against_autograd(shape: tuple[int, int], n_pairs: int, seed: int) -> None:
    """Rows occur in several pairs, on either side."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    better, worse = torch.randint(shape[1], (2, shape[0], n_pairs), generator=generator)
    weights = torch.rand(shape[0], n_pairs, generator=generator, dtype=torch.float64)
    loss, slope = bpr(scores, better, worse, weights)
    scores.requires_grad_()
    wanted = torch.stack(
        [
            sum((-weights[c, k] * logsigmoid(row[better[c, k]] - row[worse[c, k]]) for k in range(n_pairs)), row[0] * 0)
            for c, row in enumerate(scores)
        ]
    )
    (gradient,) = torch.autograd.grad(wanted.sum(), scores)
    torch.testing.assert_close(loss, wanted.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(slope, gradient, rtol=1e-12, atol=1e-13)


def test_bpr_of_far_apart_scores_is_finite() -> None:
    scores = torch.tensor([[500.0, -500.0]])
    loss, slope = bpr(scores, torch.tensor([[1]]), torch.tensor([[0]]), torch.ones(1, 1))
    assert loss.tolist() == [1000.0]
    assert slope.tolist() == [[1.0, -1.0]]
