"""Splits with several held-out items, beside plain loops."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import interactions_of, random_interactions

from fedrecgel.data.audit import audit
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.load import load
from fedrecgel.data.protocols import make_split
from fedrecgel.data.split import Split, leave_one_out
from fedrecgel.errors import ConfigError, DataError

KINDS: dict[str, dict[str, Any]] = {
    "last-n": {"n": 3},
    "ratio": {"share": 0.3},
    "temporal": {"share": 0.3},
}


def held_out(split: Split, which: str = "test") -> dict[Any, set[Any]]:
    """Held-out items by name of the user."""
    found, names = split.held_out(which), split.interactions
    sets: dict[Any, set[Any]] = defaultdict(set)
    for user, item in zip(found.owners, found.items, strict=True):
        sets[names.user_ids[user]].add(names.item_ids[item])
    return dict(sets)


def trained(split: Split) -> dict[Any, set[Any]]:
    names, train = split.interactions, split.train
    return {
        names.user_ids[user]: {names.item_ids[item] for item in train.items[train.ptr[user] : train.ptr[user + 1]]}
        for user in range(split.n_users)
    }


def rows_of(data: Interactions) -> list[tuple[Any, Any, int]]:
    times = data.times if data.times is not None else np.zeros(len(data), dtype=np.int64)
    return [
        (data.user_ids[user], data.item_ids[item], int(time))
        for user, item, time in zip(data.users, data.items, times, strict=True)
    ]


rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 6)), min_size=6, max_size=40)


@settings(max_examples=100, deadline=None)
@given(rows, st.sampled_from(sorted(KINDS)), st.booleans())
def test_what_holds_for_every_kind(rows: list[tuple[int, int, int]], kind: str, validation: bool) -> None:
    numbers = sorted({user for user, _, _ in rows})
    data = interactions_of([(numbers.index(user), item, time) for user, item, time in rows], 30)
    try:
        split = make_split(data, kind=kind, validation=validation, candidates=5, **KINDS[kind])
    except DataError:
        assert kind == "temporal" or max(Counter(user for user, _ in {row[:2] for row in rows}).values()) < 5
        return
    train, test = trained(split), held_out(split)
    tuned = held_out(split, "validation") if validation else {}
    everything: dict[Any, set[Any]] = defaultdict(set)
    for user, item, _ in rows_of(data):
        everything[user].add(item)
    for user in split.interactions.user_ids:
        parts = [train[user], test.get(user, set()), tuned.get(user, set())]
        assert parts[0]
        assert set().union(*parts) == everything[user]
        assert sum(map(len, parts)) == len(everything[user])
    for number, user in enumerate(split.interactions.user_ids):
        touched = {split.interactions.item_ids.index(item) for item in everything[user]}
        assert not touched & set(split.candidates[number].tolist())
    assert audit(split).heldout_in_train == 0
    assert make_split(data, split.settings).fingerprint == split.fingerprint


def test_last_n_by_hand() -> None:
    rows = [(0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 2, 4), (0, 4, 5), (1, 1, 1), (1, 2, 2), (2, 7, 1), (2, 7, 2)]
    split = make_split(interactions_of(rows, 20), kind="last-n", n=2, candidates=3)
    assert held_out(split) == {"u0": {104, 102}, "u1": {102}}  # one item remains to train on
    assert trained(split) == {"u0": {101, 103}, "u1": {101}, "u2": {107}}
    blind = make_split(interactions_of(rows, 20), kind="last-n", n=1, validation=True, candidates=3)
    assert (held_out(blind), held_out(blind, "validation")) == ({"u0": {104}, "u1": {102}}, {"u0": {102}})
    assert split.tie_rule == "2 items per user: the latest; among equals the lowest item number"


def test_temporal_by_hand() -> None:
    early = [(user, item, item) for user in range(3) for item in range(3)]  # times 0, 1, 2
    late = [(0, 5, 10), (0, 1, 11), (3, 5, 12), (3, 6, 13)]
    split = make_split(interactions_of([*early, *late], 20), kind="temporal", share=4 / 13, candidates=3)
    assert split.interactions.user_ids == ["u0", "u1", "u2"]
    assert held_out(split) == {"u0": {105}}
    assert split.notes == [
        "1 users have no row to train on and were dropped.",
        "1 held-out pairs occur earlier, too, and are not tested: they stay where they were.",
    ]
    found = audit(split)
    assert (found.split, found.tested_users, found.tested_items) == ("temporal", 1, 1)
    assert "2 of 3 users have nothing held out" in " ".join(found.warnings)
    with pytest.raises(DataError, match="temporal needs timestamps"):
        make_split(interactions_of([*early, *late], 20, timed=False), kind="temporal")


def test_ratio_is_seeded_and_does_not_depend_on_the_order_of_rows() -> None:
    rows = rows_of(random_interactions(30, 200, timed=False, longest=40))
    data, turned = (
        Interactions.from_frame({"user": [row[0] for row in some], "item": [row[1] for row in some]})
        for some in (rows, rows[::-1])
    )
    first = held_out(make_split(data, kind="ratio"))
    assert held_out(make_split(turned, kind="ratio")) == first
    assert held_out(make_split(data, kind="ratio", seed=1)) != first
    sizes = {user: len({item for one, item, _ in rows if one == user}) for user in first}
    assert {user: len(items) for user, items in first.items()} == {u: max(1, n // 5) for u, n in sizes.items()}


@pytest.mark.parametrize("per_user", [True, False])
def test_given_files(tmp_path: Path, per_user: bool) -> None:
    train, test = {0: [1, 2, 3], 1: [2, 4], 2: [9]}, {0: [4, 5], 1: [2, 7], 5: [1]}
    for name, sets in (("train", train), ("test", test)):
        if per_user:
            lines = [f"{user} {' '.join(map(str, items))}" for user, items in sets.items()]
        else:
            lines = ["user,item", *(f"{user},{item}" for user, items in sets.items() for item in items)]
        (tmp_path / f"{name}.{'txt' if per_user else 'csv'}").write_text("\n".join(lines) + "\n")
    paths = [str(tmp_path / f"{name}.{'txt' if per_user else 'csv'}") for name in ("train", "test")]
    data = load(paths[0], min_interactions=1, columns="user,item,..." if per_user else None)
    split = data.split(kind="given", test=paths[1], candidates=2)
    assert split.interactions.item_ids == [1, 2, 3, 4, 5, 7, 9]
    assert held_out(split) == {0: {4, 5}, 1: {7}}  # 2 is among the training items of user 1
    assert trained(split) == {0: {1, 2, 3}, 1: {2, 4}, 2: {9}}
    assert "1 users of" in split.notes[0]
    assert "1 held-out pairs occur earlier" in split.notes[1]
    blind = data.split(kind="given", test=paths[1], candidates=1, validation=True, share=0.4)
    assert held_out(blind) == held_out(split)
    assert {user: len(items) for user, items in held_out(blind, "validation").items()} == {0: 1, 1: 1}


def test_given_files_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "text.csv").write_text("user,item\na,1\n")
    (tmp_path / "strangers.csv").write_text("user,item\n7,1\n")
    data = Interactions.from_frame({"user": [1, 1], "item": [2, 3]}, min_interactions=1)
    with pytest.raises(DataError, match=r"Ids of users should be integers in both .* Found 1 to train on and 'a'"):
        data.split(kind="given", test=str(tmp_path / "text.csv"))
    with pytest.raises(DataError, match="should have rows to train on"):
        data.split(kind="given", test=str(tmp_path / "strangers.csv"))
    with pytest.raises(DataError, match="There is no file"):
        data.split(kind="given", test=str(tmp_path / "nothing.csv"))
    with pytest.raises(ConfigError, match='Name it with test="…"'):
        data.split(kind="given")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "ratio", "n": 3}, "n belongs to kind = last-n. Found 'ratio'"),
        ({"share": 0.1}, "share belongs to kind = ratio or temporal or given. Found 'leave-one-out'"),
        ({"kind": "ratio", "share": 1.5}, "share should lie between 0 and 1"),
        ({"kind": "last-n", "n": 0}, "n should be at least 1"),
        ({"kind": "temporal", "share": 0.6, "validation": True}, "share should leave rows to train on"),
    ],
)
def test_settings_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        random_interactions().split(**options)


def test_leave_one_out_is_as_before() -> None:
    data = random_interactions()
    assert make_split(data).fingerprint == leave_one_out(data).fingerprint
    assert list(make_split(data).settings.stated()) == ["seed", "ties", "untimed", "validation", "candidates"]
    assert not make_split(data).several
