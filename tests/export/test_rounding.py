from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrecgel.export.rounding import as_rounded, round_rows

TABLES = arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.floats(-1e6, 1e6, width=32))


@given(TABLES)
def test_no_entry_moves_by_more_than_half_a_step(table: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    whole, scales = round_rows(table)
    assert whole.dtype == np.int8
    assert (np.abs(as_rounded(table) - table) <= 0.5001 * scales[:, None] + 1e-30).all()
    np.testing.assert_allclose(np.abs(as_rounded(table)).max(1), np.abs(table).max(1), rtol=1e-6, atol=1e-30)


def test_a_row_of_zeros_stays() -> None:
    whole, scales = round_rows(np.zeros((2, 3), dtype=np.float32))
    assert not whole.any()
    assert not scales.any()


def test_rows_have_scales_of_their_own() -> None:
    whole, scales = round_rows(np.array([[1, -0.5], [100, 25]], dtype=np.float32))
    assert whole.tolist() == [[127, -64], [127, 32]]
    np.testing.assert_allclose(scales, [1 / 127, 100 / 127])
