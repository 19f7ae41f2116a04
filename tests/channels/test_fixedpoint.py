from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrecgel.channels.fixedpoint import FixedPointSettings, as_ratio, to_floats, to_integers
from fedrecgel.errors import RunError

bits = st.integers(1, 40)


@given(st.lists(st.floats(-8, 8), max_size=20), bits)
def test_rounding_moves_a_value_by_half_a_step_at_most(values: list[float], fraction_bits: int) -> None:
    integers = to_integers(torch.tensor(values, dtype=torch.float64), FixedPointSettings(fraction_bits))
    for value, integer in zip(values, integers.tolist(), strict=True):
        assert abs(Fraction(value) - Fraction(integer, 2**fraction_bits)) <= Fraction(1, 2 ** (fraction_bits + 1))


@given(st.lists(st.integers(-(2**53), 2**53), max_size=20), st.integers(0, 60))
def test_integers_come_back_exactly(integers: list[int], exponent: int) -> None:
    values = to_floats(np.array(integers, dtype=np.int64), exponent, torch.float64)
    assert [Fraction(value) for value in values.tolist()] == [Fraction(integer, 2**exponent) for integer in integers]


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=20), bits)
def test_there_and_back_again_changes_nothing_more(values: list[float], fraction_bits: int) -> None:
    numbers = FixedPointSettings(fraction_bits)
    once = to_floats(to_integers(torch.tensor(values, dtype=torch.float64), numbers), fraction_bits, torch.float64)
    assert torch.equal(to_floats(to_integers(once, numbers), fraction_bits, torch.float64), once)


def test_halves_go_to_even_and_shapes_are_flattened() -> None:
    table = torch.tensor([[0.25, 0.75], [-0.25, 1.25]])
    assert to_integers(table, FixedPointSettings(fraction_bits=1)).tolist() == [0, 2, 0, 2]


@given(st.floats(-8, 8), bits)
def test_the_bound_holds(value: float, fraction_bits: int) -> None:
    numbers = FixedPointSettings(fraction_bits)
    assert abs(int(to_integers(torch.tensor([value], dtype=torch.float64), numbers)[0])) <= numbers.bound


@pytest.mark.parametrize("value", [8.5, -9.0, math.inf, -math.inf, math.nan])
def test_values_beyond_what_was_agreed_are_refused(value: float) -> None:
    with pytest.raises(RunError, match=r"at most 8 in magnitude.*fixed_point\.largest"):
        to_integers(torch.tensor([0.0, value]), FixedPointSettings())
    if math.isfinite(value):
        assert len(to_integers(torch.tensor([0.0, value]), FixedPointSettings(largest=9.0))) == 2


@given(st.floats(1e-9, 1e9) | st.floats(-1e9, -1e-9))
def test_a_factor_keeps_sixteen_bits(factor: float) -> None:
    m, s = as_ratio(factor)
    assert s >= 0
    assert abs(Fraction(m, 2**s) - Fraction(factor)) <= abs(Fraction(factor)) / 2**16
    odd = m // (m & -m)
    assert abs(odd) < 2**16
    assert m % 2 or s == 0, "in lowest terms"


@pytest.mark.parametrize(("factor", "ratio"), [(1.0, (1, 0)), (-0.5, (-1, 1)), (0.75, (3, 2)), (6.0, (6, 0))])
def test_short_factors_are_exact(factor: float, ratio: tuple[int, int]) -> None:
    assert as_ratio(factor) == ratio


@pytest.mark.parametrize("factor", [0.0, math.inf, math.nan])
def test_factors_without_a_ratio_are_refused(factor: float) -> None:
    with pytest.raises(RunError, match="finite number other than 0"):
        as_ratio(factor)
