"""The contrastive term and its gradient by hand against the formula and automatic differentiation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.cofedrec import supervised_contrast
from torch import Tensor

from fedrecgel.models import contrast as module
from fedrecgel.models.contrast import contrast

WARM: dict[str, float] = {"temperature": 0.3, "base_temperature": 0.5}


def tables_of(clients: int, n: int, dim: int, seed: int, n_labels: int) -> tuple[Tensor, Tensor]:
    generator = np.random.default_rng(seed)
    tables = torch.from_numpy(generator.normal(size=(clients, n, dim)) * generator.uniform(0.1, 9, (clients, n, 1)))
    return tables, torch.from_numpy(generator.integers(0, n_labels, n))


def by_autograd(tables: Tensor, labels: Tensor, anchors: Tensor | None, **heat: float) -> tuple[Tensor, Tensor]:
    """The plain formula of each client's table, differentiated."""
    losses, gradients = [], []
    for table in tables:
        leaf = table.clone().requires_grad_()
        loss = supervised_contrast(leaf, labels, heat["temperature"], heat["base_temperature"], anchors)
        losses.append(loss.detach())
        gradients += torch.autograd.grad(loss, leaf)
    return torch.stack(losses), torch.stack(gradients)


@given(
    clients=st.integers(1, 3),
    n=st.integers(2, 14),
    dim=st.integers(1, 5),
    n_labels=st.integers(1, 6),
    seed=st.integers(0, 999),
    temperature=st.sampled_from([0.05, 0.1, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_equals_the_differentiated_formula(
    clients: int, n: int, dim: int, n_labels: int, seed: int, temperature: float
) -> None:
    tables, labels = tables_of(clients, n, dim, seed, n_labels)
    heat = {"temperature": temperature, "base_temperature": 0.5}
    anchors = torch.from_numpy(np.random.default_rng(seed).choice(n, max(1, n // 2), replace=False))
    for chosen in (None, anchors):
        loss, gradient = contrast(tables, labels, chosen, **heat)
        wanted_loss, wanted = by_autograd(tables, labels, chosen, **heat)
        assert torch.allclose(loss, wanted_loss, rtol=1e-11, atol=1e-11)
        assert torch.allclose(gradient, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("block", [1, 17, 60, 1 << 22])
def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    tables, labels = tables_of(2, 15, 4, 0, 4)
    whole = contrast(tables, labels, None, **WARM)
    monkeypatch.setattr(module, "BLOCK", block)
    for found, wanted in zip(contrast(tables, labels, None, **WARM), whole, strict=True):
        assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-13)


def test_anchors_are_unbiased() -> None:
    """The mean over all single anchors is the term over all items, its gradient included."""
    tables, labels = tables_of(2, 9, 3, 1, 3)
    single: Any = [contrast(tables, labels, torch.tensor([row]), **WARM) for row in range(9)]
    for parts, whole in zip(zip(*single, strict=True), contrast(tables, labels, None, **WARM), strict=True):
        assert torch.allclose(torch.stack(parts).mean(0), whole, rtol=1e-12, atol=1e-13)


def test_singletons_give_nothing() -> None:
    tables, _ = tables_of(1, 6, 3, 0, 1)
    loss, gradient = contrast(tables, torch.arange(6), None, **WARM)
    assert not loss.any()
    assert not gradient.any()


def test_length_does_not_matter_and_the_gradient_is_across_it() -> None:
    """Rows are compared by direction."""
    tables, labels = tables_of(1, 8, 4, 2, 2)
    loss, gradient = contrast(tables, labels, None, **WARM)
    longer, shorter = contrast(3 * tables, labels, None, **WARM)
    assert torch.allclose(loss, longer)
    assert torch.allclose(gradient, 3 * shorter)
    assert (gradient * tables).sum(2).abs().max() < 1e-12
