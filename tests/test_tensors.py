from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel import tensors
from fedrecgel.tensors import Factors, client_norm, copy, grow, lazy_zeros, move, n_bytes, put_rows, release

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
    torch.testing.assert_close(factors.scale(by).each(), by[:, None, None] * expected)
    torch.testing.assert_close(factors.scale(by).total(), torch.einsum("c,cab->ab", by, expected))
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
    found = move(values, torch.device("cpu"))
    assert list(found) == ["a", "b"]
    assert all(torch.equal(found[name], values[name]) for name in values)
    assert move(values, torch.device("meta"))["a"].device.type == "meta"


def test_copied_has_memory_of_its_own() -> None:
    values = {"a": torch.ones(2)}
    copy(values)["a"].fill_(7)
    assert values["a"].tolist() == [1, 1]


CPU = torch.device("cpu")


@pytest.mark.parametrize("on_disk_from", [1, 2 << 30], ids=["on disk", "in memory"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_lazy_zeros(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_disk_from: int, dtype: torch.dtype) -> None:
    monkeypatch.setattr(tensors, "ON_DISK_FROM", on_disk_from)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = lazy_zeros((5, 3, 2), dtype, CPU)
    assert (found.shape, found.dtype) == ((5, 3, 2), dtype)
    assert not found.any()
    found[3] = 7
    other = lazy_zeros((5, 3, 2), dtype, CPU)
    assert not other.any()
    other[1] = 2
    assert found.sum() == 6 * 7
    assert not any(tmp_path.iterdir()), "the file should have no name"


def test_only_large_tensors_live_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tensors, "ON_DISK_FROM", 4 * 100)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))  # where no file can be made
    assert lazy_zeros((99,), torch.float32, CPU).shape == (99,)
    with pytest.raises(FileNotFoundError):
        lazy_zeros((100,), torch.float32, CPU)


def test_lazy_zeros_of_nothing_and_elsewhere() -> None:
    assert lazy_zeros((0, 3), torch.float32, CPU).shape == (0, 3)
    assert lazy_zeros((4, 3), torch.float32, torch.device("meta")).device.type == "meta"


@pytest.mark.parametrize("on_disk_from", [1, 2 << 30], ids=["on disk", "in memory"])
def test_a_table_grows_where_it_is(monkeypatch: pytest.MonkeyPatch, on_disk_from: int) -> None:
    monkeypatch.setattr(tensors, "ON_DISK_FROM", on_disk_from)
    table = torch.full((1, 3, 2), 4.0, dtype=torch.bfloat16)
    places = []
    for n_rows in (2, 2, 5, 7):
        table = grow(table, n_rows, most=7)
        assert table.shape == (n_rows, 3, 2)
        table[-1] = n_rows
        places.append(table.data_ptr())
    assert len(set(places)) == 1, "room is taken once"
    assert table[[0, 1, 4, 6], 0, 0].tolist() == [4, 2, 5, 7]
    other = table[:2].clone()
    longer = grow(other, 3, most=7)
    assert torch.equal(longer[:2], other)
    longer[:] = 9
    assert table[0, 0, 0] == 4, "a copy grows elsewhere"


def test_a_slice_is_not_grown_over_its_neighbours() -> None:
    table = torch.arange(12.0).view(6, 2)
    assert torch.equal(grow(table[:, :1], 6, most=9), table[:, :1])
    found = grow(table[::2], 4, most=5)
    assert torch.equal(found[:3], table[::2])
    found[3] = 0
    assert torch.equal(table, torch.arange(12.0).view(6, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_rows_of_a_table_in_a_file_are_written_and_read_back(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Written beside the mapped pages, and still there when the pages were given back."""
    values = torch.arange(24).view(2, 4, 3).to(dtype)
    found = []
    for limit in (1, 1 << 30):
        monkeypatch.setattr(tensors, "ON_DISK_FROM", limit)
        table = lazy_zeros((5, 4, 3), dtype, CPU)
        put_rows(table, torch.tensor([4, 1]), values)
        put_rows(table[:4], torch.tensor([0, 3]), values[:, 1:3] + 1, slice(2, 4))
        release(table)
        found.append(table)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0][[4, 1]], values)
    assert torch.equal(found[0][3, 2:], values[1, 1:3] + 1)
