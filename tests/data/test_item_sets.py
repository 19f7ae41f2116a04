from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws

N_ITEMS = 12
pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, N_ITEMS - 1)), max_size=60)


def sets_of(rows: list[tuple[int, int]], n_users: int = 5, n_items: int = N_ITEMS) -> ItemSets:
    users, items = (np.array([row[k] for row in rows], dtype=np.int32) for k in (0, 1))
    return ItemSets.from_pairs(users, items, n_users, n_items)


@settings(max_examples=60, deadline=None)
@given(pairs, st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_against_python_sets(rows: list[tuple[int, int]], users: list[int]) -> None:
    sets = sets_of(rows)
    assert sets.n_users == 5
    for user in range(5):
        mine = slice(sets.ptr[user], sets.ptr[user + 1])
        expected = sorted({item for owner, item in rows if owner == user})
        assert sets.items[mine].tolist() == expected
        assert sets.counts[mine].tolist() == [rows.count((user, item)) for item in expected]
    asked = np.array(users)
    assert sets.sizes(asked).tolist() == [len({item for owner, item in rows if owner == user}) for user in users]
    owner, at = sets.flat(asked)
    assert list(zip(owner.tolist(), sets.items[at].tolist(), strict=True)) == [
        (position, item) for position, user in enumerate(users) for item in sorted({i for u, i in rows if u == user})
    ]
    some = sets.of(asked)
    assert (some.n_users, some.n_items) == (len(users), N_ITEMS)
    assert (some.items.tolist(), some.counts.tolist()) == (sets.items[at].tolist(), sets.counts[at].tolist())
    assert some.sizes(np.arange(len(users))).tolist() == sets.sizes(asked).tolist()


@settings(max_examples=60, deadline=None)
@given(pairs, st.integers(1, N_ITEMS))
def test_the_latest_items_of_each_user(rows: list[tuple[int, int]], most: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])  # by user, the latest first
    users, items = (np.array([row[k] for row in rows], dtype=np.int32) for k in (0, 1))
    found = ItemSets.from_latest_first(users, items, 5, N_ITEMS).latest(most)
    for user in range(5):
        latest = list(dict.fromkeys(item for owner, item in rows if owner == user))[:most]
        mine = slice(found.ptr[user], found.ptr[user + 1])
        assert found.items[mine].tolist() == sorted(latest)
        assert found.counts[mine].tolist() == [rows.count((user, item)) for item in sorted(latest)]
        assert found.recency is not None
        assert found.recency[mine].tolist() == [latest.index(item) for item in sorted(latest)]
    unordered = ItemSets.from_pairs(users, items, 5, N_ITEMS)
    assert unordered.latest(most) is unordered


@settings(max_examples=60, deadline=None)
@given(pairs.filter(bool))
def test_contains(rows: list[tuple[int, int]]) -> None:
    users, items = np.divmod(np.arange(5 * N_ITEMS), N_ITEMS)
    found = sets_of(rows).contains(users.reshape(5, -1), items.reshape(5, -1))
    assert found.tolist() == [[(user, item) in rows for item in range(N_ITEMS)] for user in range(5)]


@settings(max_examples=60, deadline=None)
@given(pairs, st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(0, N_ITEMS), st.integers(0, 999))
def test_outside_is_outside_and_distinct(rows: list[tuple[int, int]], users: list[int], k: int, seed: int) -> None:
    """Up to k = all free items, where the draw must be exactly the complement."""
    sets = sets_of(rows)
    free = [set(range(N_ITEMS)) - {item for owner, item in rows if owner == user} for user in users]
    k = min(k, *map(len, free))
    numbers = Draws(seed).uniform("test", 0, np.arange(len(users))[:, None], np.arange(k)[None, :])
    found = sets.outside(np.array(users), numbers)
    assert found.shape == (len(users), k)
    for row, allowed in zip(found.tolist(), free, strict=True):
        assert len(set(row)) == k
        assert set(row) <= allowed
        if k == len(allowed):
            assert set(row) == allowed


@pytest.mark.parametrize("edge", [0.0, np.nextafter(1.0, 0.0)])
def test_outside_at_the_ends_of_the_unit_interval(edge: float) -> None:
    sets = sets_of([(0, 0), (0, 11), (1, 5)])
    found = sets.outside(np.array([0, 1]), np.full((2, 4), edge))
    assert all(len(set(row)) == 4 for row in found.tolist())
    assert not sets.contains(np.array([[0] * 4, [1] * 4]), found).any()


def test_outside_is_uniform_over_subsets() -> None:
    """User 1 of 3 lacks items 0, 2, 3, 6 and 7; every pair of them must come equally often."""
    sets = sets_of([(0, 3), (1, 1), (1, 4), (1, 5), (2, 0)], n_users=3, n_items=8)
    n = 20_000
    numbers = Draws(1).uniform("test", 0, np.arange(n)[:, None], np.arange(2)[None, :])
    found = np.sort(sets.outside(np.full(n, 1), numbers), axis=1)
    drawn, counts = np.unique(found[:, 0] * 8 + found[:, 1], return_counts=True)
    expected = sorted(a * 8 + b for a, b in permutations([0, 2, 3, 6, 7], 2) if a < b)
    assert drawn.tolist() == expected
    assert ((counts - n / 10) ** 2 / (n / 10)).sum() < 30  # chi-square, 9 degrees: p < 0.0005 above


def test_large_catalogues_do_not_overflow() -> None:
    """50,000 users times 100,000 items exceeds 32 bits."""
    users = np.arange(50_000, dtype=np.int32)
    items = (users * 2 + 1).astype(np.int32)
    sets = ItemSets.from_pairs(users, items, 50_000, 100_001)
    last = np.array([49_999])
    assert sets.contains(last, np.array([99_999])).tolist() == [True]
    assert sets.outside(last, np.array([[0.99999999]])).tolist() == [[100_000]]
