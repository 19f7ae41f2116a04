"""The kernel behind GPFedRec's tables against the PyTorch it replaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.models import guided
from fedrecgel.models.guided import GuidedTables, blend
from fedrecgel.models.kernels import allow_kernels
from fedrecgel.models.kernels.compiler import Recipe, library
from fedrecgel.numerics.graph import Smoother

pytestmark = pytest.mark.skipif(library(Recipe.of("guides.cpp", D=16)) is None, reason="needs a C++ compiler")


def tables_of(clients: int, n: int, dim: int, dtype: torch.dtype, seed: int) -> GuidedTables:
    """Clients with and without guides; one sent nothing, another an item twice."""
    made = torch.Generator().manual_seed(seed)
    everything, guides = (torch.randn(*shape, n, dim, generator=made) for shape in ((), (clients + 1,)))
    way = torch.rand(clients, generator=made)
    way[0] = 0
    at = torch.randint(0, n, (clients, 4), generator=made)
    sent = 50 * torch.randn(clients, 4, dim, generator=made)
    sent[-1] = 0
    halves = [(at[: clients // 2], sent[: clients // 2]), (at[clients // 2 :], sent[clients // 2 :])]
    return GuidedTables.of(everything, guides.to(dtype), torch.arange(clients), way, halves)


@given(
    clients=st.integers(2, 9),
    n=st.integers(1, 70),
    dim=st.sampled_from([16, 32, 48]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    hops=st.integers(1, 2),
    seed=st.integers(0, 999),
)
@settings(max_examples=30, deadline=None)
def test_agrees_with_pytorch(clients: int, n: int, dim: int, dtype: torch.dtype, hops: int, seed: int) -> None:
    tables = tables_of(clients, n, dim, dtype, seed)
    found = []
    for compiled in (True, False):
        with allow_kernels(compiled):
            blended = blend(tables.everything, tables.guides, tables.which, tables.way)
            similar = tables.projected_cosines(32, np.random.default_rng(seed), centred=False)
            guides = torch.zeros(clients + 1, n, dim, dtype=dtype)
            smoother = Smoother.k_nearest(torch.rand(clients, clients, generator=torch.Generator().manual_seed(1)), 2)
            mean = tables.smooth(smoother, hops, guides, torch.arange(clients).flip(0))
        found.append((blended.float(), similar, guides.float(), mean))
    exact = 1e-5 if dtype == torch.float32 else 1e-2  # rounding may fall to the other side
    for mine, wanted, tolerance in zip(*found, (exact, 1e-5, exact, 1e-5), strict=True):
        assert (mine - wanted).abs().max() <= tolerance * wanted.abs().max() + 1e-6


def test_guides_are_made_in_blocks_and_may_take_the_place_of_those_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1, 500, 1 << 26):
        monkeypatch.setattr(guided, "AT_ONCE", size)
        tables = tables_of(6, 40, 16, torch.bfloat16, 3)
        with allow_kernels(True):
            mean = tables.smooth(Smoother.k_nearest(torch.eye(6), 3), 1, tables.guides, tables.which)
        found.append((tables.guides, mean))
    for guides, mean in found[1:]:
        assert torch.equal(guides, found[0][0])
        assert torch.equal(mean, found[0][1])


def test_what_is_no_number_stays_none() -> None:
    everything = torch.full((1, 16), torch.nan)
    with allow_kernels(True):
        found = blend(everything, torch.zeros(1, 1, 16, dtype=torch.bfloat16), torch.tensor([0]), torch.tensor([0.0]))
    assert found.isnan().all()
