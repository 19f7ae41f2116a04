"""Degrees, thresholds and circles."""

from __future__ import annotations

from itertools import pairwise
from math import comb
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.channels.neighbours import COMPLETE, DROPPED, FAILURE, circle, neighbours, plan, quorum


@pytest.mark.parametrize("n", [3, 4, 5, 6, 9, 10, 17, COMPLETE])
def test_few_participants_are_all_neighbours_and_nothing_is_left_to_chance(n: int) -> None:
    found = plan(n)
    assert found.degree == n - 1
    left = n - int(n / 3)
    assert found.fewest == left
    assert found.threshold <= left, "those who are left hold enough shares of everybody who is lost"
    assert 2 * found.threshold > n, "no two disjoint groups of holders can both open a secret"


@pytest.mark.parametrize("n", [25, 60, 100, 333, 1000])
def test_a_third_may_be_lost_with_the_stated_probability(n: int) -> None:
    """The tail of the hypergeometric distribution, summed in whole numbers."""
    degree, threshold, fewest = plan(n)
    lost = int(DROPPED * n)
    assert fewest == n - lost
    few = sum(comb(n - 1 - lost, left) * comb(lost, degree - left) for left in range(threshold))
    assert n * few / comb(n - 1, degree) <= FAILURE
    corrupt = int(0.05 * n)
    many = sum(comb(corrupt, bad) * comb(n - 1 - corrupt, degree - bad) for bad in range(threshold, degree + 1))
    assert n * many / comb(n - 1, degree) <= FAILURE


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 2000))
def test_two_groups_that_say_something_share_an_honest_participant(n: int) -> None:
    assert 2 * quorum(n) - n > int(0.05 * n)
    assert quorum(n) <= n - int(n / 3), "those who are left are enough"


def test_degrees_hardly_grow() -> None:
    assert [plan(n).degree for n in (100, 1000)] == [24, 44]
    assert plan(10_000).degree < 70


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 60), st.integers(0, 2**32))
def test_a_circle_gives_everybody_as_many_neighbours_and_all_are_mutual(n: int, seed: int) -> None:
    random = Random(seed)
    messages = {random.randrange(10**6): random.randbytes(8) for _ in range(n)}
    order = circle(messages)
    assert sorted(order) == sorted(messages)
    assert circle(dict(sorted(messages.items(), reverse=True))) == order, "the order of arrival does not matter"
    degree = plan(len(messages)).degree
    near = neighbours(order, degree)
    for one, others in near.items():
        assert len(set(others)) == len(others) == degree
        assert one not in others
        assert all(one in near[other] for other in others)
    for one, other in pairwise(order):
        assert other in near[one]


def test_one_other_message_gives_another_circle() -> None:
    messages = {number: bytes([number]) for number in range(40)}
    assert circle(messages) != circle({**messages, 7: b"other"})
