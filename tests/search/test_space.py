from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrecgel.errors import ConfigError
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import from_dict, read_config
from fedrecgel.search.space import (
    Choice,
    Range,
    default_space,
    own_values,
    read_search,
    read_space,
    with_values,
)

CONFIG = from_dict({"method": {"name": "fedrecgel", "rho_co": 0.5}})
positions = st.floats(0, 1)


@given(positions, st.floats(1e-6, 1e3), st.floats(1.01, 1e4), st.booleans())
def test_every_position_of_a_range_is_inside(position: float, low: float, factor: float, log: bool) -> None:
    entry = Range(low, low * factor, log)
    assert entry.at(position) in entry
    assert (entry.at(0), entry.at(1)) == (entry.tidy(entry.low), entry.tidy(entry.high))


@given(positions, st.integers(1, 50), st.integers(1, 50), st.booleans())
def test_whole_bounds_give_whole_numbers(position: float, low: int, more: int, log: bool) -> None:
    entry = Range(low, low + more, log)
    value = entry.at(position)
    assert type(value) is int
    assert value in entry
    assert (entry.at(0), entry.at(1)) == (low, low + more)


def test_positions_are_spread_as_asked() -> None:
    assert Range(1e-4, 1e-2, log=True).at(0.5) == pytest.approx(1e-3)
    assert Range(0.0, 1.0).at(0.25) == 0.25
    assert [Range(1, 4).at(p) for p in (0.1, 0.3, 0.6, 0.9)] == [1, 2, 3, 4]
    assert [Choice(("a", "b")).at(p) for p in (0.0, 0.49, 0.5, 1.0)] == ["a", "a", "b", "b"]
    assert Range(0.0, 1.0).at(1 / 3) == 0.3333


def test_a_space_is_read_from_quoted_and_dotted_keys() -> None:
    entry = {"low": 1e-4, "high": 1e-1, "log": True}
    for table in ({"method.server_lr": entry}, {"method": {"server_lr": entry}}):
        assert read_space(table, CONFIG) == {"method.server_lr": Range(1e-4, 1e-1, log=True)}
    found = read_space({"method.chunk": {"low": 16, "high": 64}, "sampling.negatives": [2, 4]}, CONFIG)
    assert found == {"method.chunk": Range(16, 64), "sampling.negatives": Choice((2, 4))}


RATE = "method.server_lr"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"method.server_l": [0.1]}, "Unknown key 'server_l' in [method]. Did you mean 'server_lr'?"),
        ({"method.name": ["fedncf"]}, "one method at a time"),
        ({"method.variant": ["paper"]}, "one method at a time"),
        ({"sampling.negative": [1]}, "Did you mean 'sampling.negatives'?"),
        ({"split.seed": [1, 2]}, "nothing that is measured with"),
        ({"run.rounds": [10, 20]}, "nothing that is measured with"),
        ({"sampling.exclude_heldout_from_negatives": [True]}, "nothing that is measured with"),
        ({"server_lr": [0.1]}, "Did you mean 'method.server_lr'?"),
        ({RATE: []}, "should list different values"),
        ({RATE: [0.1, 0.1]}, "should list different values"),
        ({RATE: [[0.1]]}, "should list different values"),
        ({RATE: 0.1}, "should be a list of values or a range"),
        ({RATE: {"low": 0.1}}, "It has no high."),
        ({RATE: {"low": 0.1, "high": 0.1}}, "should have low < high. Found low = 0.1 and high = 0.1."),
        ({RATE: {"low": 0.2, "high": 0.1}}, "should have low < high"),
        ({RATE: {"low": 0.1, "high": float("inf")}}, "should have low < high"),
        ({RATE: {"low": float("nan"), "high": 1.0}}, "should have low < high"),
        (
            {RATE: {"low": 0.1, "high": 1.0, "lag": True}},
            "Unknown key 'lag' in [search.method.server_lr]. Did you mean",
        ),
        ({RATE: {"low": "0.1", "high": 1.0}}, "search.method.server_lr.low cannot be '0.1'"),
        ({"method.rho_co": {"low": 0.0, "high": 1.0, "log": True}}, "needs low > 0. Found 0.0."),
        ({RATE: {"low": 0.0, "high": 1.0}}, "method.server_lr cannot be 0.0: Expected `float` > 0.0"),
        ({"method.fraction": [0.5, 1.5]}, "method.fraction cannot be 1.5: Expected `float` <= 1.0"),
        ({"method.order": ["user-first", "user-frst"]}, "Unknown method.order 'user-frst'. Did you mean 'user-first'?"),
        ({"method.chunk": {"low": 1.5, "high": 3.5}}, "method.chunk cannot be 1.5"),
    ],
    ids=str,
)
def test_a_wrong_space_says_what_is_wrong(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_space(table, CONFIG)
    assert message in str(caught.value)
    assert "search" in str(caught.value)


FILE = """
[method]
name = "fedncf"
[run]
rounds = 3
"""


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("[search]", r"\[search\] should say what to try"),
        ('[search]\n"method.server_l" = [1]', "Did you mean 'server_lr'"),
        ("[searh]", "Unknown section 'searh'"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(search: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE + search)
    with pytest.raises(ConfigError, match=message):
        read_search(path)


def test_training_refuses_a_search_and_says_where_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{FILE}[search]\n'{RATE}' = [0.1, 0.2]\n")
    with pytest.raises(ConfigError, match="belongs to `fedrecgel tune`"):
        read_config(path)
    config, space = read_search(path)
    assert (config.method.name, config.run.rounds) == ("fedncf", 3)
    assert space == {RATE: Choice((0.1, 0.2))}


def test_without_a_table_the_methods_own_space_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    _, space = read_search(path)
    assert set(space) == {"method.fraction", "method.server_lr", "method.user_lr"}
    path.write_text("[method]\nname = 'popularity'\n")
    with pytest.raises(ConfigError, match=r"no default space for 'popularity'\. Add a table \[search\]"):
        read_search(path)


def test_all_methods_that_learn_have_a_space() -> None:
    assert not [name for name, kind in METHODS.items() if kind.kind != "reference" and not kind.search]


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if kind.search])
def test_every_default_space_fits_its_method(name: str) -> None:
    config = from_dict({"method": {"name": name}})
    space = read_space(default_space(name), config)
    assert {key.partition(".")[2] for key in space} <= {field.name for field in fields(METHODS[name])}
    participation = Choice((0.1, 0.5, 1.0)) if METHODS[name].kind == "federated" else None
    assert space.get("method.fraction") == participation, "the same choice for all that have it"
    outside = {key: value for key, value in own_values(config, space).items() if value not in space[key]}
    assert not outside, "a default space holds the method's own defaults"


def test_rounds_that_a_method_states_follow_its_settings() -> None:
    config = from_dict({"method": {"name": "spectra"}})
    assert with_values(config, {"method.fraction": 0.5}).run.rounds == 2 * config.run.rounds
    assert with_values(config, {"method.fraction": 0.5, "run.rounds": 99}).run.rounds == 99


def test_values_go_into_the_config_and_come_out_again() -> None:
    space = read_space({"method.rho_co": [0.1, 0.2], "sampling.negatives": [1, 2]}, CONFIG)
    assert own_values(CONFIG, space) == {"method.rho_co": 0.5, "sampling.negatives": 4}
    changed = with_values(CONFIG, {"method.rho_co": 0.1, "sampling.negatives": 1})
    assert own_values(changed, space) == {"method.rho_co": 0.1, "sampling.negatives": 1}
    assert with_values(changed, own_values(CONFIG, space)).to_dict() == CONFIG.to_dict()
