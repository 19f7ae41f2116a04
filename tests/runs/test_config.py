from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fedrecgel.errors import ConfigError
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import Config, check_device, from_dict, parse_assignment, read_config


def settings(*assignments: str, path: Path | None = None) -> Config:
    return read_config(path, [parse_assignment(text) for text in assignments])


def test_defaults_are_the_published_protocol() -> None:
    config = settings()
    assert config == Config()
    assert (config.method.name, config.data.name, config.run.rounds, config.run.seed) == ("fedrecgel", "demo", 100, 0)
    assert (config.sampling.negatives, config.split.candidates, config.evaluation.ks) == (4, 99, (5, 10))
    assert (config.data.min_interactions, config.evaluation.selection, config.run.channel) == (5, "last", "plain")
    assert not config.sampling.exclude_heldout_from_negatives
    assert not config.split.validation
    assert config.default_out == Path("runs/demo-fedrecgel-s0")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("runs.seed=1", "Unknown section 'runs'. Did you mean 'run'?"),
        ("run.sed=1", "Unknown key 'sed' in [run]. Did you mean 'seed'?"),
        ("method.rho_c=1", "Unknown key 'rho_c' in [method]. Did you mean 'rho_co'?"),
        ("method.options=1", "Unknown key 'options' in [method]."),
        ("method.name=fedrecgl", "Unknown method 'fedrecgl'. Did you mean 'fedrecgel'?"),
        ("method.variant=papr", "Unknown variant of 'fedrecgel' 'papr'. Did you mean 'paper'?"),
        ("run.channel=plan", "Unknown channel 'plan'. Did you mean 'plain'?"),
        ("run.rounds=many", "run.rounds cannot be 'many': Expected `int`, got `str`. The default is 100."),
        ("run.rounds=0", "run.rounds cannot be 0: Expected `int` >= 1."),
        ("run.rounds=true", "run.rounds cannot be True"),
        ("run.seed=-1", "run.seed cannot be -1"),
        ("method.rho_co=-0.1", "method.rho_co cannot be -0.1: Expected `float` >= 0.0."),
        ("method.rho_co=nan", "method.rho_co cannot be nan"),
        ("method.fraction=1.5", "method.fraction cannot be 1.5"),
        ("method.server_lr=0", "method.server_lr cannot be 0"),
        ("method.order=last", "Unknown method.order 'last'"),
        ("evaluation.ks=[5, 0]", "evaluation.ks cannot be [5, 0]"),
        ("split.ties=first", "Unknown split.ties 'first'"),
        ("run.dtype=float16", "Unknown run.dtype 'float16'. Did you mean 'float"),
        ("data.min_interactions=0", "data.min_interactions cannot be 0"),
    ],
)
def test_wrong_settings_say_what_is_wrong(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(assignment)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run.seed=3", ("run", "seed", 3)),
        ("method.rho_co = 0.05", ("method", "rho_co", 0.05)),
        ("evaluation.ks=[1, 20]", ("evaluation", "ks", [1, 20])),
        ("split.validation=true", ("split", "validation", True)),
        ("data.name=a/b=c.csv", ("data", "name", "a/b=c.csv")),
        ("data.name='12'", ("data", "name", "12")),
        ("split.ties=last-row", ("split", "ties", "last-row")),
    ],
)
def test_assignments(text: str, expected: tuple[str, str, object]) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["run.seed", "seed=1", "=1", ".seed=1", "run.=1", ""])
def test_no_assignment(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--set takes section\.key=value"):
        parse_assignment(text)


CHANGES: list[dict[str, dict[str, Any]]] = [
    {},
    {"method": {"variant": "paper"}},
    {"method": {"variant": "paper", "server_lr": 0.5, "g_norm": 0.25}},
    {"method": {"name": "popularity"}, "data": {"dir": "some/where", "min_rating": 3.5, "distinct": True}},
    {"evaluation": {"ks": [1, 3, 50], "selection": "validation", "full": False}, "split": {"untimed": "file-order"}},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_written_file_gives_the_same_settings(changes: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    config = from_dict(changes)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    again = read_config(path)
    assert again.to_dict() == config.to_dict()
    assert again.method.build() == config.method.build()
    assert tomllib.loads(config.to_toml()) == config.to_dict()


def test_the_written_file_has_every_hyper_parameter() -> None:
    for name, kind in METHODS.items():
        written = from_dict({"method": {"name": name}}).to_dict()["method"]
        assert written == json.loads(json.dumps({"name": name, **asdict(kind())}))  # lists, as in every file


def test_a_variant_is_defaults_then_variant_then_options() -> None:
    plain, paper, mixed = (
        from_dict({"method": method}).to_dict()["method"]
        for method in ({}, {"variant": "paper"}, {"variant": "paper", "server_lr": 0.5})
    )
    changed = {key for key in plain if plain[key] != paper[key]}
    steps = {"user_optimiser", "server_optimiser", "user_lr", "server_lr", "server_tau", "round_decay"}
    steps |= {"reg_user", "init", "start_popularity"}
    assert changed <= steps | {"order", "g_norm", "reduction"}
    assert (paper["order"], paper["server_optimiser"], paper["reduction"]) == ("user-first", "sgd", "mean")
    assert mixed == {**paper, "server_lr": 0.5}


def test_selection_on_validation_switches_the_validation_item_on() -> None:
    assert settings("evaluation.selection=validation").split.validation
    assert not settings("evaluation.selection=test").split.validation


FILE = """
[method]
name = "fedrecgel"
rho_co = 0.5
[run]
rounds = 7
seed = 3
"""


def test_a_run_folder_from_before_faults_were_taken_out_still_opens() -> None:
    old = {"faults": {"dropout": 0.0, "host_of": 0, "seconds": 0.0}}
    assert from_dict(old) == from_dict({})
    with pytest.raises(ConfigError, match="Unknown section 'faults'"):
        from_dict({"faults": {**old["faults"], "dropout": 0.5}})


def test_overrides_come_on_top_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    config = settings("run.seed=4", "method.rho_ur=0.1", path=path)
    assert (config.run.rounds, config.run.seed) == (7, 4)
    assert dict(config.method.options) == {"rho_co": 0.5, "rho_ur": 0.1}
    assert dict(settings("method.name=fedrecgel", path=path).method.options) == {"rho_co": 0.5}


def test_another_method_drops_the_options_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    config = settings("method.name=fedncf", "method.chunk=64", path=path)
    assert (config.method.name, dict(config.method.options)) == ("fedncf", {"chunk": 64})
    assert config.run.rounds == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "There is no config file"),
        ("[run\nseed = 1", "cannot be read"),
        ("run = 3", r"\[run\] should be a table"),
        ("[run]\nseed = '1'", "run.seed cannot be '1'"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_broken_files(text: str | bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=message):
        read_config(path)
    with pytest.raises(ConfigError):
        settings("run.rounds=3", path=path)


def test_a_device_is_asked_for_only_when_training() -> None:
    """A run trained elsewhere on a GPU can still be opened here."""
    config = from_dict({"run": {"device": "gpu"}})
    with pytest.raises(ConfigError, match=r"run\.device = 'gpu' cannot be used here"):
        check_device(config)
