from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import interactions_of, random_interactions, random_split

from fedrecgel.data.split import NO_ITEM, Split, SplitSettings, Ties, Untimed, leave_one_out
from fedrecgel.errors import ConfigError, DataError

TIED = [(0, 7, 1), (0, 5, 9), (0, 3, 9), (0, 4, 9), (0, 8, 2)]
"""One user; items 5, 3 and 4 share the latest time, in this order of rows."""


def test_rows_in_any_order_the_latest_is_held_out() -> None:
    split = leave_one_out(interactions_of([(1, 2, 30), (0, 1, 5), (1, 3, 10), (0, 0, 4)], 10), candidates=3)
    assert split.test.tolist() == [1, 2]
    assert split.train.items.tolist() == [0, 3]


@pytest.mark.parametrize(("ties", "expected"), [("lowest-item", 3), ("last-row", 4)])
def test_tie_rules(ties: Ties, expected: int) -> None:
    split = leave_one_out(interactions_of(TIED, 20), ties=ties, candidates=5)
    assert split.test.tolist() == [expected]
    assert "the latest; among equals" in split.tie_rule


def test_random_ties_reach_every_tied_row_and_nothing_else() -> None:
    data = interactions_of(TIED, 20)
    chosen = [int(leave_one_out(data, ties="random", seed=seed, candidates=5).test[0]) for seed in range(60)]
    assert set(chosen) == {3, 4, 5}
    assert all(chosen.count(item) > 8 for item in (3, 4, 5))


@pytest.mark.parametrize("untimed", ["random", "file-order"])
def test_untimed(untimed: Untimed) -> None:
    data = interactions_of(TIED, 20, timed=False)
    splits = [leave_one_out(data, untimed=untimed, seed=seed, candidates=5) for seed in range(60)]
    chosen = {int(split.test[0]) for split in splits}
    assert chosen == ({3, 4, 5, 7, 8} if untimed == "random" else {8})
    assert "no timestamps" in splits[0].tie_rule


def test_users_are_drawn_independently() -> None:
    data = interactions_of([(user, item, 0) for user in range(40) for item in range(2)], 20)
    heldout = leave_one_out(data, ties="random", candidates=5).test
    assert 8 < int(heldout.sum()) < 32


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_training_and_held_out_rows_are_all_rows(seed: int, timed: bool, validation: bool) -> None:
    data = random_interactions(6, 40, seed=seed, timed=timed)
    split = leave_one_out(data, validation=validation, candidates=15, seed=seed)
    rows = sorted(zip(data.users.tolist(), data.items.tolist(), strict=True))
    again = [(user, int(item)) for user, item in enumerate(split.test)]
    if split.validation is not None:
        again += [(user, int(item)) for user, item in enumerate(split.validation) if item != NO_ITEM]
    for user in range(split.n_users):
        for at in range(split.train.ptr[user], split.train.ptr[user + 1]):
            again += [(user, int(split.train.items[at]))] * int(split.train.counts[at])
    assert sorted(again) == rows
    assert (split.validation is not None) == validation


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_validation_is_the_latest_other_item(seed: int) -> None:
    data = random_interactions(6, 40, seed=seed)
    split = leave_one_out(data, validation=True, candidates=15)
    assert split.validation is not None
    assert data.times is not None
    for user in range(6):
        mine = data.users == user
        others = mine & (data.items != split.test[user])
        at = others & (data.items == split.validation[user])
        assert data.times[at].max() == data.times[others].max()
        assert data.times[mine & (data.items == split.test[user])].max() == data.times[mine].max()


def test_a_user_with_one_distinct_item_has_no_validation_item() -> None:
    data = interactions_of([(0, 1, k) for k in range(5)] + [(1, k, k) for k in range(5)], 20, min_interactions=5)
    split = leave_one_out(data, validation=True, candidates=5)
    assert split.validation is not None
    assert split.validation.tolist() == [NO_ITEM, 3]
    assert split.train.counts.tolist() == [4, 1, 1, 1]


def test_candidates_are_distinct_unobserved_and_do_not_depend_on_validation() -> None:
    data = random_interactions(20, 150)
    plain, selecting = leave_one_out(data), leave_one_out(data, validation=True)
    assert np.array_equal(plain.candidates, selecting.candidates)
    assert np.array_equal(plain.test, selecting.test)
    assert selecting.validation_candidates is not None
    assert not np.array_equal(selecting.candidates, selecting.validation_candidates)
    for candidates in (plain.candidates, selecting.validation_candidates):
        assert candidates.shape == (20, 99)
        for user, row in enumerate(candidates.tolist()):
            assert len(set(row)) == 99
            assert not set(row) & set(data.items[data.users == user].tolist())
            assert set(row) <= set(range(150))


def test_candidates_do_not_depend_on_other_users() -> None:
    whole = random_interactions(10, 150)
    first = whole.users < 4
    part = interactions_of(
        list(zip(*(array[first].tolist() for array in (whole.users, whole.items, whole.times)), strict=True)),  # type: ignore[index]
        150,
        min_interactions=5,
    )
    assert np.array_equal(leave_one_out(part).candidates, leave_one_out(whole).candidates[:4])


def fingerprints() -> dict[str, str]:
    data = random_interactions()
    items = data.items.copy()
    items[0] = (items[0] + 1) % 150
    times = np.zeros(len(data), dtype=np.int64)
    splits: dict[str, Split] = {
        "usual": leave_one_out(data),
        "seed": leave_one_out(data, seed=1),
        "ties": leave_one_out(data, ties="last-row"),
        "validation": leave_one_out(data, validation=True),
        "candidates": leave_one_out(data, candidates=98),
        "one item": leave_one_out(replace(data, items=items)),
        "times": leave_one_out(replace(data, times=times)),
        "user id": leave_one_out(replace(data, user_ids=["other", *data.user_ids[1:]])),
        "data": random_split(seed=1),
    }
    return {name: split.fingerprint for name, split in splits.items()}


def test_fingerprint_is_stable_and_sees_every_change() -> None:
    found = fingerprints()
    assert len(set(found.values())) == len(found)
    assert found == fingerprints()
    assert len(found["usual"]) == 64


def test_too_few_items() -> None:
    data = interactions_of([(0, item, item) for item in range(5)], 100)
    with pytest.raises(DataError, match=r"needs 99 items.*has 100 items and user 'u0' touched all but 95"):
        leave_one_out(data)
    assert leave_one_out(data, candidates=95).candidates.shape == (1, 95)


@pytest.mark.parametrize(("validation", "minimum"), [(False, 1), (True, 2)])
def test_too_few_interactions_per_user(validation: bool, minimum: int) -> None:
    data = interactions_of([(0, item, item) for item in range(5)], 200, min_interactions=minimum)
    with pytest.raises(
        DataError, match=rf"at least {minimum + 1} interactions.*Found data.min_interactions = {minimum}"
    ):
        leave_one_out(data, validation=validation)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="tie"):
        random_split(tie="random")


@pytest.mark.parametrize(("rule", "value"), [("ties", "lowest"), ("untimed", "random-row")])
def test_unknown_rules_are_named(rule: str, value: str) -> None:
    settings = SplitSettings()
    object.__setattr__(settings, rule, value)  # past the type checks that only run in tests
    with pytest.raises(ConfigError, match=rf"Unknown split\.{rule} '{value}'\. Did you mean"):
        leave_one_out(random_interactions(), settings)
