"""What "auto" chooses, that it is written down, and that what is written down repeats the run."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import random_split

from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.models.kernels.compiler import Recipe
from fedrecgel.runs import acceleration
from fedrecgel.runs.acceleration import prepare, settle
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.settings import CHANGE_NO_NUMBER, difference, settings_fingerprint
from fedrecgel.runs.train import train_config

SPLIT = random_split(n_users=12, n_items=150)
SMALL: dict[str, Any] = {"name": "fedncf", "gmf_dim": 16, "mlp_dim": 32}


def config_of(**sections: dict[str, Any]) -> Config:
    rest: dict[str, dict[str, Any]] = {"run": {"rounds": 2}, "evaluation": {"full": False}}
    rest |= {"method": SMALL, "data": {"name": "demo"}}
    return from_dict({**rest, **sections})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Recipe | None]]:
    """A machine with a compiler on which nothing is built yet; what is asked of it."""
    found: dict[str, list[Recipe | None]] = {"now": [], "aside": []}

    def build(recipe: Recipe | None) -> str:
        found["now"].append(recipe)
        return "built"

    monkeypatch.delenv(acceleration.VARIABLE)
    monkeypatch.setattr(acceleration, "compiler", lambda: "c++")
    monkeypatch.setattr(acceleration, "gains", lambda: True)
    monkeypatch.setattr(acceleration, "state_of", lambda recipe: "new")
    monkeypatch.setattr(acceleration, "library", build)
    monkeypatch.setattr(acceleration, "build_aside", found["aside"].append)
    return found


def test_a_short_run_does_not_wait_for_a_compiler(asked: dict[str, list[Recipe | None]]) -> None:
    said: list[str] = []
    assert settle(config_of(), SPLIT, say=said.append).local.accelerate is False
    assert (len(asked["now"]), len(asked["aside"])) == (0, 1)
    assert "for the next run" in said[0]


def test_a_long_run_does(asked: dict[str, list[Recipe | None]]) -> None:
    said: list[str] = []
    assert settle(config_of(run={"rounds": 10**6}), SPLIT, say=said.append).local.accelerate is True
    assert (len(asked["now"]), len(asked["aside"])) == (1, 0)
    assert ["once: some seconds" in said[0], "Training through a compiled kernel" in said[1]] == [True, True]


@pytest.mark.parametrize(("state", "chosen"), [("built", True), ("failed", False)])
def test_what_is_built_is_used_and_what_failed_is_not_tried_again(
    asked: dict[str, list[Recipe | None]], state: str, chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceleration, "state_of", lambda recipe: state)
    assert settle(config_of(run={"rounds": 10**6}), SPLIT).local.accelerate is chosen
    assert not asked["aside"]


@pytest.mark.parametrize(
    "sections",
    [
        {"method": {"name": "fedrap"}},
        {"method": {**SMALL, "gmf_dim": 5}},
        {"run": {"rounds": 10**6, "dtype": "float64"}},
        {"run": {"rounds": 10**6, "channel": "secagg"}},
        {"run": {"rounds": 10**6, "engine": "flower"}, "flower": {"superlink": "host:1"}},
        {"run": {"rounds": 10**6}, "local": {"accelerate": False}},
    ],
)
def test_nothing_is_compiled_where_it_would_not_be_used(
    asked: dict[str, list[Recipe | None]], sections: dict[str, Any]
) -> None:
    config = config_of(**sections)
    assert settle(config, SPLIT).local.accelerate is False
    assert asked == {"now": [], "aside": []}


@pytest.mark.parametrize("reason", ["variable", "compiler", "gains"])
def test_auto_can_do_without(
    asked: dict[str, list[Recipe | None]], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "variable":
        monkeypatch.setenv(acceleration.VARIABLE, "false")
    else:
        monkeypatch.setattr(acceleration, reason, lambda: None)
    assert settle(config_of(run={"rounds": 10**6}), SPLIT).local.accelerate is False
    prepare([config_of()])
    assert asked == {"now": [], "aside": []}


def test_many_runs_build_each_kernel_once_before_the_first(asked: dict[str, list[Recipe | None]]) -> None:
    wider = config_of(method={**SMALL, "gmf_dim": 32})
    prepare([config_of(), config_of(run={"seed": 1}), wider, config_of(local={"accelerate": True})])
    assert len(asked["now"]) == 2


@pytest.mark.parametrize("chosen", [True, False])
def test_the_folder_records_the_choice_and_repeats_it(
    chosen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedrecgel.engine.economies import has_kernel
    from fedrecgel.models.kernels.compiler import gains

    if chosen and not (has_kernel(FedNCF(gmf_dim=16, mlp_dim=32)) and gains()):
        pytest.skip("needs a C++ compiler and a processor that gains")
    monkeypatch.setenv(acceleration.VARIABLE, str(chosen))
    first = train_config(config_of(), SPLIT, RunFolder(tmp_path / "first"))
    assert first.summary["accelerated"] is chosen
    written = tomllib.loads((tmp_path / "first" / "config.toml").read_text())
    assert written["local"]["accelerate"] is chosen
    monkeypatch.setenv(acceleration.VARIABLE, "false")
    again = train_config(from_dict(written), SPLIT, RunFolder(tmp_path / "again"))
    assert all(torch.equal(value, again.shared[name]) for name, value in first.shared.items())
    longer = replace(config_of(), run=replace(config_of().run, rounds=3))
    (tmp_path / "first" / "summary.json").unlink()
    resumed = train_config(longer, SPLIT, RunFolder(tmp_path / "first"), resume=True)
    assert resumed.summary["accelerated"] is chosen, "a run that goes on keeps what it has"


def test_auto_stands_for_the_default_that_it_replaced() -> None:
    auto, plain, fast = (config_of(local={"accelerate": value}).to_dict() for value in ("auto", False, True))
    marks = [settings_fingerprint(one, CHANGE_NO_NUMBER) for one in (auto, plain, fast)]
    assert marks[0] == marks[1] != marks[2]
    assert difference(auto, plain) is None
    assert difference(auto, fast) is None
    assert difference(fast, plain) == ("local.accelerate", False, True)
