"""The kernel of the contrastive term against the PyTorch it replaces."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import random_split
from tests.models.test_contrast import tables_of

import fedrecgel as fr
from fedrecgel.engine.economies import has_kernel
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.models.contrast import contrast
from fedrecgel.models.kernels import allow_kernels
from fedrecgel.models.kernels.compiler import Recipe, library

pytestmark = pytest.mark.skipif(
    library(Recipe.of("contrast.cpp", D=16)) is None, reason="needs a C++ compiler at run time"
)


@given(
    clients=st.integers(1, 3),
    n=st.integers(2, 250),
    dim=st.sampled_from([16, 32, 48]),
    n_labels=st.integers(1, 9),
    seed=st.integers(0, 999),
    temperature=st.sampled_from([0.01, 0.05, 0.1, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_agrees_with_pytorch(clients: int, n: int, dim: int, n_labels: int, seed: int, temperature: float) -> None:
    tables, labels = tables_of(clients, n, dim, seed, n_labels)
    heat = {"temperature": temperature, "base_temperature": 0.5}
    anchors = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[: n // 2 + 1]
    for chosen in (None, anchors):
        with allow_kernels(True):
            found = contrast(tables.float(), labels, chosen, **heat)
        for mine, wanted in zip(found, contrast(tables, labels, chosen, **heat), strict=True):
            assert mine.dtype == torch.float32
            assert (mine - wanted).abs().max() <= 3e-5 * wanted.abs().max() + 1e-6


def test_items_alone_with_their_label_give_exactly_nothing() -> None:
    tables, _ = tables_of(2, 40, 16, 0, 1)
    with allow_kernels(True):
        loss, gradient = contrast(tables.float(), torch.arange(40), None, temperature=0.1, base_temperature=0.5)
    assert not loss.any()
    assert not gradient.any()


def test_cofedrec_takes_it_when_asked() -> None:
    assert has_kernel(CoFedRec(dim=16))
    assert not has_kernel(CoFedRec(dim=5))
    split = random_split(n_users=20, n_items=200)
    options: dict[str, Any] = {"dim": 16, "lr_eta": 0.1, "clusters": 5}
    plain = fr.train("cofedrec", split, rounds=3, **options)
    fast = fr.train("cofedrec", split, rounds=3, **options, local={"accelerate": True})
    assert fast.summary["accelerated"]
    assert plain.metrics == fast.metrics
