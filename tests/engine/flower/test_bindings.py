"""Which key hosts whom, as a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.engine.flower.bindings import MOST_WARNINGS, Bindings, read_hosts
from fedrecgel.errors import ConfigError, StorageError


def users(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


@settings(max_examples=20)
@given(st.dictionaries(st.text(max_size=8), st.sets(st.integers(0, 40), min_size=1), max_size=4))
def test_what_is_remembered_is_read_back(tmp_path_factory: pytest.TempPathFactory, hosts: dict[str, set[int]]) -> None:
    place = tmp_path_factory.mktemp("run") / "hosts.json"
    kept = Bindings(place=place)
    for key, some in hosts.items():
        kept.bind(key, users(*some))
        kept.join("run", key, len(some), again=False)
    kept.warn("Something happened.")
    kept.save()
    found = Bindings.read(place)
    assert {key: set(some.tolist()) for key, some in found.hosts.items()} == hosts
    assert (found.joined, found.warnings) == (kept.joined, kept.warnings)


def test_neighbours_are_written_as_ranges(tmp_path: Path) -> None:
    kept = Bindings(place=tmp_path / "hosts.json")
    kept.bind("a", users(4, 5, 6, 9, 1))
    kept.save()
    assert json.loads((tmp_path / "hosts.json").read_text())["hosts"] == {"a": [[1, 1], [4, 6], [9, 9]]}


def test_a_run_killed_before_it_remembered_anything_knows_nobody(tmp_path: Path) -> None:
    assert Bindings.read(tmp_path / "hosts.json").hosts == {}


BROKEN = [
    "",
    "[]",
    "{}",
    '{"hosts": 3}',
    '{"hosts": {"a": [[3]]}}',
    '{"hosts": {"a": [[3, 2]]}}',
    '{"hosts": {"a": [[-1, 2]]}}',
    '{"hosts": {"a": [[0, 2147483647]]}}',
    '{"hosts": {}, "more": 1}',
    '{"hosts": {"a": [[0, 1e400]]}}',
    '{"hosts": {}, "joined": {"run": {"a": "x"}}}',
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_damaged_file_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text(text)
    with pytest.raises(StorageError, match=r"hosts.json' should say which key hosts which users"):
        Bindings.read(tmp_path / "hosts.json")
    with pytest.raises(ConfigError, match=r"flower\.hosts should name a JSON file"):
        read_hosts(text)


def test_no_user_has_two_keys_by_the_operators_word() -> None:
    assert read_hosts('{"hosts": {"a": [[0, 2]], "b": [[3, 3]]}}')["a"].tolist() == [0, 1, 2]
    with pytest.raises(ConfigError, match="every user to one key"):
        read_hosts('{"hosts": {"a": [[0, 2]], "b": [[2, 3]]}}')


def test_the_operators_word_moves_users(tmp_path: Path) -> None:
    kept = Bindings()
    kept.bind("a", users(0, 1, 2))
    kept.obey(read_hosts('{"hosts": {"a": [[0, 0]], "b": [[1, 2]]}}'))
    assert kept.refusal("b", users(1, 2)) is None
    assert kept.refusal("a", users(0, 1)) == "1 of the 2 users it claims are not its own by flower.hosts"
    assert kept.refusal("c", users(0)) == "flower.hosts does not name it"


def test_remembered_users_must_exist() -> None:
    kept = Bindings()
    kept.bind("a", users(0, 7))
    kept.check(8)
    with pytest.raises(StorageError, match="should be about its 7 users"):
        kept.check(7)


def test_warnings_do_not_repeat_and_are_bounded() -> None:
    kept = Bindings()
    for number in range(2 * MOST_WARNINGS):
        kept.warn("Again.")
        kept.warn(f"Number {number}.")
    assert len(kept.warnings) == MOST_WARNINGS
    assert kept.warnings[:2] == ["Again.", "Number 0."]
