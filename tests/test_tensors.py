from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.tensors import Factors, client_norm, moved, n_bytes

sizes = st.integers(1, 5)


@settings(max_examples=30, deadline=None)
@given(sizes, sizes, sizes, sizes)
def test_factors_are_their_products(clients: int, rows: int, a: int, b: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(clients, rows, a, generator=generator, dtype=torch.float64)
    right = torch.randn(clients, rows, b, generator=generator, dtype=torch.float64)
    by = torch.randn(clients, generator=generator, dtype=torch.float64)
    factors = Factors(left, right)
    expected = torch.einsum("cka,ckb->cab", left, right)
    torch.testing.assert_close(factors.each(), expected)
    torch.testing.assert_close(factors.total(), expected.sum(0))
    torch.testing.assert_close(factors.scaled(by).each(), by[:, None, None] * expected)
    torch.testing.assert_close(factors.scaled(by).total(), torch.einsum("c,cab->ab", by, expected))
    torch.testing.assert_close(factors.each(), expected)


def test_client_norm_is_one_norm_over_all_tensors_of_a_client() -> None:
    values = {"a": torch.tensor([[3.0], [0.0], [1.0]]), "b": torch.tensor([[[0.0, 4.0]], [[0.0, 0.0]], [[2.0, 2.0]]])}
    assert client_norm(values).tolist() == [5.0, 0.0, 3.0]
    assert client_norm({"a": torch.tensor([-2.0, 7.0])[:, None]}).tolist() == [2.0, 7.0]


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, 4 * 7), (torch.float64, 8 * 7)])
def test_n_bytes(dtype: torch.dtype, expected: int) -> None:
    assert n_bytes({"a": torch.zeros(2, 3, dtype=dtype), "b": torch.zeros((), dtype=dtype)}) == expected
    assert n_bytes({}) == 0


def test_moved_keeps_names_and_values() -> None:
    values = {"a": torch.arange(3), "b": torch.ones(2)}
    found = moved(values, torch.device("cpu"))
    assert list(found) == ["a", "b"]
    assert all(torch.equal(found[name], values[name]) for name in values)
    assert moved(values, torch.device("meta"))["a"].device.type == "meta"
