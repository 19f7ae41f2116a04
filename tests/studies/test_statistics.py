"""The paired test against worked numbers, simulation and tables of Student's t."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrecgel.studies.simulated import World
from fedrecgel.studies.statistics import (
    Array,
    Comparison,
    compare,
    correct,
    grand_mean,
    holm,
    paired_differences,
    t_quantile,
    two_sided_p,
)

tables = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 30)), elements=st.floats(-1, 1, width=32))


@pytest.mark.parametrize(
    ("freedom", "probability", "t"),
    [(1, 0.975, 12.706), (4, 0.975, 2.776), (10, 0.95, 1.812), (30, 0.995, 2.750), (1000, 0.975, 1.962)],
)
def test_student_t_against_printed_tables(freedom: float, probability: float, t: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(t, abs=6e-4)
    assert two_sided_p(t, freedom) == pytest.approx(2 * (1 - probability), rel=2e-3)


def test_many_degrees_of_freedom_are_normal() -> None:
    for t in (0.5, 1.96, 5.0):
        assert two_sided_p(t, 2e5) == pytest.approx(math.erfc(t / math.sqrt(2)), rel=1e-3)
    assert two_sided_p(3.0, math.inf) == pytest.approx(math.erfc(3 / math.sqrt(2)))


def test_one_seed_is_the_paired_t_test() -> None:
    first, second = np.array([[1.0, 2.0, 4.0, 3.0]]), np.array([[0.0, 2.0, 1.0, 1.0]])
    found = compare(first, second)  # differences 1, 0, 3, 2: mean 1.5, sd 1.2910
    t = 1.5 / (math.sqrt(5 / 3) / 2)
    assert found.difference == 1.5
    assert found.p == pytest.approx(two_sided_p(t, 3))
    assert found.effect == pytest.approx(1.5 / math.sqrt(5 / 3))
    assert (found.low + found.high) / 2 == pytest.approx(1.5)
    assert found.high - 1.5 == pytest.approx(t_quantile(0.975, 3) * math.sqrt(5 / 3) / 2)


def test_variance_by_hand() -> None:
    table = np.array([[0.0, 2.0], [2.0, 8.0]])  # mean 3; users 1, 5; seeds 1, 5; rest ±1
    mean, variance, freedom = grand_mean(table)
    assert mean == 3
    assert variance == pytest.approx((16 + (16 - 4)) / 4)  # MS_u = MS_s = 16, MS_e = 4
    assert freedom == pytest.approx(28**2 / (16**2 + 16**2 + 4**2))


def test_luck_of_a_seed_is_no_effect() -> None:
    """Users alone would call it real: every user gains with one seed, and loses as much with another."""
    generator = np.random.default_rng(0)
    noise = 0.01 * generator.standard_normal((3, 500))
    table = noise + np.array([[0.3], [-0.25], [0.05]])
    assert compare(table, np.zeros((1, 500))).p > 0.3
    assert compare(table.mean(0, keepdims=True), np.zeros((1, 500))).p < 1e-10


@pytest.mark.parametrize("luck", [0.0, 1.5])
def test_false_alarms_are_as_rare_as_promised(luck: float) -> None:
    """Binary hits of two methods alike, with luck of seeds or without: 5% of tests err, within what 600 can show."""
    generator, error = np.random.default_rng(1), 0.0
    for _ in range(600):
        first, second = World(users=150, seeds=5, luck=luck).hits(generator)
        error += compare(first, second).p < 0.05
    assert 0.02 < error / 600 < 0.08


@given(tables)
def test_swapping_methods_swaps_the_sign(table: Array) -> None:
    zero = np.zeros_like(table)
    there, back = compare(table, zero), compare(zero, table)
    assert there.difference == pytest.approx(-back.difference, abs=1e-12)
    assert there.p == pytest.approx(back.p, abs=1e-9)
    assert 0 <= there.p <= 1
    assert there.low <= there.difference <= there.high


def test_nothing_differs_from_itself() -> None:
    found = compare(np.ones((2, 5)), np.ones((2, 5)))
    assert (found.p, found.effect, found.sign) == (1.0, 0.0, 0)


def test_one_row_stands_against_every_seed() -> None:
    assert paired_differences(np.ones((3, 2)), np.zeros((1, 2))).shape == (3, 2)
    with pytest.raises(ValueError, match="same seeds"):
        paired_differences(np.ones((3, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="same users"):
        paired_differences(np.ones((1, 2)), np.ones((1, 3)))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_only_raises_and_keeps_the_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(after >= before for before, after in zip(values, adjusted, strict=True))
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [adjusted[index] for index in order] == sorted(adjusted)


@given(st.lists(st.tuples(st.floats(-0.3, 0.3), st.floats(1e-3, 0.2), st.floats(3, 50)), min_size=1, max_size=8))
def test_no_interval_contradicts_its_mark(drawn: list[tuple[float, float, float]]) -> None:
    """And all are wider than those of single tests, but where a side is sure."""
    family = [
        Comparison(d, d, d, two_sided_p(d / error, freedom), 0.0, 100, 5, error=error, freedom=freedom)
        for d, error, freedom in drawn
    ]
    for alone, found in zip(family, correct(family), strict=True):
        assert found.low <= found.difference <= found.high
        reach = t_quantile(1 - 0.025 / len(family), alone.freedom or 0.0) * alone.error
        assert found.high - found.low <= 2 * reach + 1e-12
        crosses = found.low < -1e-12 and found.high > 1e-12
        assert crosses == (found.sign == 0 and abs(found.difference) < reach) or abs(found.difference) < 1e-9


def test_intervals_of_a_family_by_hand() -> None:
    """Two tests at 10 degrees of freedom: t(1 - 0.0125) = 2.6338; the second only Holm's method calls real."""
    clear = Comparison(0.08, 0, 0, two_sided_p(8, 10), 0.0, 100, 5, error=0.01, freedom=10)
    close = Comparison(0.025, 0, 0, two_sided_p(2.5, 10), 0.0, 100, 5, error=0.01, freedom=10)
    first, second = correct([clear, close])
    assert (first.low, first.high) == pytest.approx((0.08 - 0.026338, 0.08 + 0.026338), abs=1e-6)
    assert second.verdict == "above"
    assert (second.low, second.high) == pytest.approx((0.0, 0.025 + 0.026338), abs=1e-6)
