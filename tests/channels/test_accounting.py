"""The accountant against known answers and against a second one."""

from __future__ import annotations

import math
import sys
import warnings

import pytest

from fedrecgel.channels.accounting import allowed_rounds, needed_noise, spent_epsilon
from fedrecgel.errors import ConfigError

DELTA = 1e-5


@pytest.mark.parametrize(("z", "known"), [(1.0, 7.047), (2.0, 2.337), (4.0, 0.983)])
def test_known_answers_with_sampling(z: float, known: float) -> None:
    """As computed outside this repository, for q = 0.1 and 100 rounds."""
    assert spent_epsilon(z, 0.1, 100, DELTA) == pytest.approx(known, rel=2e-3)


@pytest.mark.parametrize(("z", "rate", "rounds"), [(0.7, 0.1, 30), (1.0, 0.02, 500), (3.0, 0.3, 60)])
def test_a_second_accountant_agrees_within_two_percent(z: float, rate: float, rounds: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies
        from opacus.accountants import PRVAccountant

        second = PRVAccountant()
        second.history = [(z, rate, rounds)]
        theirs = second.get_epsilon(DELTA, eps_error=0.005)
    assert spent_epsilon(z, rate, rounds, DELTA) == pytest.approx(theirs, rel=0.02)


@pytest.mark.parametrize(("z", "rounds"), [(2.0, 11), (5.0, 1), (8.0, 60)])
def test_without_sampling_the_formula_is_the_loss_distribution(z: float, rounds: int) -> None:
    exact = spent_epsilon(z, 1.0, rounds, DELTA)
    assert exact <= spent_epsilon(z, 1 - 1e-12, rounds, DELTA) <= 1.002 * exact


def test_no_noise_costs_everything_and_no_round_nothing() -> None:
    assert spent_epsilon(0.0, 0.1, 1, DELTA) == math.inf
    assert spent_epsilon(1.0, 0.1, 0, DELTA) == 0
    assert needed_noise(math.inf, 0.1, 100, DELTA) == 0
    assert allowed_rounds(0.0, 0.1, 7, math.inf, DELTA) == 7


@pytest.mark.parametrize("epsilon", [8.0, 1.0])
def test_the_noise_found_is_enough_and_hardly_less_is_not(epsilon: float) -> None:
    z = needed_noise(epsilon, 0.1, 40, DELTA)
    assert spent_epsilon(z, 0.1, 40, DELTA) <= epsilon < spent_epsilon(z / 1.003, 0.1, 40, DELTA)


def test_rounds_stop_before_the_budget_is_exceeded() -> None:
    rounds = allowed_rounds(1.0, 0.1, 100, 4.0, DELTA)
    assert 0 < rounds < 100
    assert spent_epsilon(1.0, 0.1, rounds, DELTA) <= 4.0 < spent_epsilon(1.0, 0.1, rounds + 1, DELTA)
    assert allowed_rounds(1.0, 1.0, 100, 0.5, DELTA) == 0


def test_an_impossible_budget_and_a_missing_library_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="needs noise above 10000 times"):
        needed_noise(1e-4, 1.0, 1000, 1e-9)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match="extra 'dp'"):
        spent_epsilon(1.23, 0.1, 3, DELTA)
