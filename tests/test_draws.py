from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.draws import Draws

CLIENTS, COUNTERS = np.arange(200), np.arange(50)


def table(seed: int = 0, purpose: str = "test", round: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return Draws(seed).uniform(purpose, round, CLIENTS[:, None], COUNTERS[None, :])


def test_noise_is_drawn_from_the_secret_where_there_is_one() -> None:
    known = Draws(3).hidden.laplace("noise", 1, CLIENTS, 8)
    assert np.array_equal(known, Draws(3).laplace("noise", 1, CLIENTS, 8))
    assert np.array_equal(Draws(3, "a").laplace("noise", 1, CLIENTS, 8), known)  # for all that is no noise
    own = Draws(3, "a").hidden.laplace("noise", 1, CLIENTS, 8)
    assert np.array_equal(own, Draws(3, "a").hidden.laplace("noise", 1, CLIENTS, 8))
    assert abs(np.corrcoef(own.ravel(), known.ravel())[0, 1]) < 0.1
    assert abs(np.corrcoef(own.ravel(), Draws(3, "b").hidden.laplace("noise", 1, CLIENTS, 8).ravel())[0, 1]) < 0.1


def test_what_a_device_draws_for_itself_nobody_else_can() -> None:
    """Neither numbers nor keys follow from the seed; in a simulator, which has no secret, both repeat."""
    ours, theirs = Draws(3, "a").own, Draws(3, "b").own
    assert np.array_equal(ours.laplace("x", 1, CLIENTS, 8), Draws(3, "a").hidden.laplace("x", 1, CLIENTS, 8))
    assert Draws(3).own == Draws(3)
    assert ours.key("x", 1, 2) == Draws(3, "a").own.key("x", 1, 2)
    keys = [draws.key("x", 1, 2) for draws in (ours, theirs, Draws(3), Draws(ours.seed), Draws(4, "a").own)]
    keys += [ours.key("y", 1, 2), ours.key("x", 12, 2), ours.key("x", 1, 12)]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 32 for key in keys)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 199), st.integers(0, 49)), min_size=1, max_size=20))
def test_a_number_depends_only_on_what_it_is_for(wanted: list[tuple[int, int]]) -> None:
    """Any subset, in any order, with repetitions."""
    clients, counters = np.array(wanted).T
    assert np.array_equal(Draws(0).uniform("test", 0, clients, counters), table()[clients, counters])
    normal = Draws(0).normal("test", 0, CLIENTS, 12)
    assert np.array_equal(Draws(0).normal("test", 0, clients, 9), normal[clients, :9])


@pytest.mark.parametrize(
    "other",
    [
        table(seed=1),
        table(seed=10),
        table(purpose="test2"),
        table(purpose=""),
        table(round=1),
        np.roll(table(), 1, axis=0),
        np.roll(table(), 1, axis=1),
    ],
    ids=["seed", "seed 10", "purpose", "no purpose", "round", "client", "counter"],
)
def test_streams_are_unrelated(other: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    assert np.intersect1d(table(), other).size in (0, other.size)  # rolled tables have the same numbers elsewhere
    assert abs(np.corrcoef(table().ravel(), other.ravel())[0, 1]) < 0.04  # 4 standard errors of 10,000 pairs


def test_parts_of_the_key_do_not_run_together() -> None:
    assert not np.array_equal(table(seed=1, purpose="1", round=1), table(seed=11, purpose="1", round=1))
    assert not np.array_equal(table(purpose="a", round=11), table(purpose="a1", round=1))


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_uniform(seed: int) -> None:
    values = table(seed)
    assert values.min() >= 0
    assert values.max() < 1
    for cut in (values.ravel(), values[:, 0], values[0], (values * 1024) % 1):
        counts = np.histogram(cut, bins=10, range=(0, 1))[0]
        expected = cut.size / 10
        assert ((counts - expected) ** 2 / expected).sum() < 30  # chi-square, 9 degrees: p < 0.0005 above


def test_normal_moments() -> None:
    values = Draws(0).normal("test", 0, np.arange(400), 100)
    assert values.shape == (400, 100)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.02
    assert values.std() == pytest.approx(1, abs=0.015)
    assert (values**3).mean() == pytest.approx(0, abs=0.06)
    assert (values**4).mean() == pytest.approx(3, abs=0.15)
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.02


def test_laplace() -> None:
    values = Draws(0).laplace("test", 0, np.arange(400), 100)
    assert values.shape == (400, 100)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.03
    for bound in (0.1, 0.5, 1.0, 3.0):  # P(|x| ≤ bound) = 1 - exp(-bound), on either side
        assert (abs(values) <= bound).mean() == pytest.approx(1 - np.exp(-bound), abs=0.01)
        assert (values > bound).mean() == pytest.approx(np.exp(-bound) / 2, abs=0.01)
    assert (values**2).mean() == pytest.approx(2, abs=0.1)
    assert np.array_equal(Draws(0).laplace("test", 0, np.array([7, 3]), 9), values[[7, 3], :9])
    assert not np.array_equal(Draws(0).laplace("test", 1, np.arange(400), 100), values)


def test_generators_repeat_and_differ() -> None:
    first, again = (Draws(3).generator("cohort", 2).random(8) for _ in range(2))
    assert np.array_equal(first, again)
    for other in (Draws(3).generator("cohort", 3), Draws(3).generator("init", 2), Draws(4).generator("cohort", 2)):
        assert not np.array_equal(first, other.random(8))


def test_the_numbers_of_a_seed_never_change() -> None:
    """A resumed run, another machine and the next release must draw the same."""
    found = Draws(42).uniform("negatives", 3, np.array([0, 7]), np.array([0, 5]))
    assert found.tolist() == PINNED


PINNED = [0.1758264334992269, 0.9595564972658714]
