"""Guesses are judged client by client, beside popularity."""

from __future__ import annotations

import numpy as np
import pytest
from tests.audit.scenes import SPLIT

from fedrecgel.audit.guesses import Histories, f1, judge


def test_f1() -> None:
    assert f1({1, 2}, {1, 2}) == 1
    assert f1({1, 2, 3, 4}, {1, 5}) == pytest.approx(2 * 0.25 * 0.5 / 0.75)
    assert f1(set(), set()) == 0


def test_the_advantage_is_a_difference_with_an_interval() -> None:
    truth = [{1, 2}, {3, 4}, {5, 6}]
    found = judge([{1, 2}, {3, 9}, {5, 6}], [{1, 9}, {8, 9}, {5, 9}], truth)
    gains = np.array([0.5, 0.5, 0.5])
    assert found.f1 == pytest.approx((1 + 0.5 + 1) / 3)
    assert found.advantage == pytest.approx(gains.mean())
    assert found.low == pytest.approx(found.high) == pytest.approx(0.5)
    wide = judge([{1, 2}, {8, 9}], [{8, 9}, {8, 9}], truth[:2])
    assert wide.low < 0 < wide.advantage < wide.high


def test_the_guess_from_popularity_has_as_many_items_as_the_client() -> None:
    histories = Histories(SPLIT.train)
    counts = [sum(item in histories.of(client) for client in range(60)) for item in range(200)]
    guess = histories.by_popularity(3)
    assert len(guess) == len(histories.of(3))
    assert min(counts[item] for item in guess) >= sorted(counts, reverse=True)[len(guess) - 1]
