from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import random_split
from torch import Tensor

from fedrecgel.data.federation import Federation
from fedrecgel.numerics import counts
from fedrecgel.numerics.counts import CountMatrix, gram_columns


def matrix_of(dense: Tensor) -> CountMatrix:
    rows, columns = dense.nonzero(as_tuple=True)
    shuffled = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    shape = (dense.shape[0], dense.shape[1])
    return CountMatrix.from_entries(rows[shuffled], columns[shuffled], dense[rows, columns][shuffled], shape)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 9), st.sampled_from([0.0, 0.3, 1.0]))
def test_it_is_the_dense_matrix(seed: int, n_rows: int, n_columns: int, share: float) -> None:
    generator = np.random.default_rng(seed)
    full = generator.random((n_rows, n_columns)) < share
    dense = torch.from_numpy(generator.integers(1, 5, full.shape) * full).double()
    matrix = matrix_of(dense)
    assert (matrix.n_rows, matrix.n_columns) == (n_rows, n_columns)
    assert torch.equal(matrix.sparse().to_dense(), dense)
    assert torch.equal(matrix.transpose().sparse().to_dense(), dense.T)
    assert torch.equal(matrix.binary().sparse().to_dense(), (dense > 0).double())
    first = int(generator.integers(0, n_rows + 1))
    assert torch.equal(matrix.part(first, n_rows).sparse().to_dense(), dense[first:])


@pytest.mark.parametrize("block", [1, 3, 100])
def test_gram_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "BLOCK", block)
    dense = torch.randint(0, 3, (5, 8), generator=torch.Generator().manual_seed(0)).double()
    found = torch.full((8, 8), torch.nan, dtype=torch.float64)
    for first, last, columns in gram_columns(matrix_of(dense)):
        found[:, first:last] = columns
    assert torch.equal(found, dense.T @ dense)


def test_uploads_in_any_order_are_rows_by_client() -> None:
    at = torch.tensor([[4, 2, 0], [1, 0, 0]])
    sent = torch.tensor([[3.0, 0, 0], [1, 2, 0]]).unsqueeze(2)
    other = torch.tensor([[[4.0], [1], [1]]])
    parts = [(torch.tensor([7, 3]), at, sent), (torch.tensor([5]), at[:1], other)]
    wanted = torch.tensor([[2.0, 1, 0, 0, 0], [1, 0, 1, 0, 4], [0, 0, 0, 0, 3]], dtype=torch.float64)
    for order in (parts, parts[::-1]):
        assert torch.equal(CountMatrix.from_uploads(order, 5).sparse().to_dense(), wanted)


def test_a_history_is_the_training_rows_of_its_clients() -> None:
    split, ids = random_split(), torch.tensor([4, 0, 9])
    found = CountMatrix.from_history(Federation(split).history(ids), torch.float32).sparse().to_dense()
    for row, user in enumerate(ids.tolist()):
        rows = split.interactions.items[split.interactions.users == user].tolist()
        rows.remove(int(split.test[user]))
        assert torch.equal(found[row], torch.bincount(torch.tensor(rows), minlength=split.n_items).float())
