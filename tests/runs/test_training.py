from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import TINY, enough_rounds, random_interactions, random_split, tiny

import fedrecgel
from fedrecgel.engine.checkpoint import Checkpoint
from fedrecgel.errors import ConfigError, RunError, RunFolderError
from fedrecgel.methods.messages import Problem
from fedrecgel.runs.config import CheckpointSettings, Config, from_dict
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.result import Result
from fedrecgel.runs.train import train_config
from fedrecgel.runs.training import Interrupted, Training
from fedrecgel.storage import read_tensors

SPLIT = random_split(n_users=16, n_items=130, validation=True)
ROUND = {
    "round",
    "loss",
    "seconds_train",
    "seconds_evaluate",
    "clients",
    "dropped",
    "refused",
    "bytes_up",
    "bytes_down",
}
METRICS = {"HR@5", "NDCG@5", "HR@10", "NDCG@10", "MRR"}


def config(rounds: int = 5, method: str = "fedrecgel", **evaluation: Any) -> Config:
    options = tiny(method)
    return from_dict(
        {
            "data": {"name": "tiny"},
            "split": {"validation": True},
            "method": {"name": method, **options},
            "run": {"rounds": rounds},
            "evaluation": {"every": 2, "full": False, **evaluation},
            "checkpoint": {"every": 2},
        }
    )


def content(folder: RunFolder) -> tuple[Any, ...]:
    """Everything a run leaves behind but its clock."""
    history = [{k: v for k, v in line.items() if "seconds" not in k} for line in folder.read_history()]
    summary = {k: v for k, v in folder.read_summary().items() if k != "seconds"}
    models = [
        {k: v.numpy().tobytes() for k, v in read_tensors(path, dict)[0].items()}
        for path in (folder.server, folder.clients)
    ]
    return (*models, folder.config.read_text(), history, summary)


class CrashError(Exception):
    """The process dies."""


def crash_at(round: int) -> Callable[[dict[str, Any]], None]:
    def watch(line: dict[str, Any]) -> None:
        if line["round"] == round:
            raise CrashError

    return watch


@pytest.mark.parametrize("selection", ["last", "validation", "test"])
def test_a_stopped_or_killed_run_resumes_to_the_same_bits(selection: str, tmp_path: Path) -> None:
    settings = config(selection=selection)
    whole = RunFolder(tmp_path / "whole")
    train_config(settings, SPLIT, whole)
    for number in range(1, 5):
        stopped, killed = RunFolder(tmp_path / f"stopped{number}"), RunFolder(tmp_path / f"killed{number}")
        asked = iter(range(1, 6))
        with pytest.raises(Interrupted) as caught:
            train_config(settings, SPLIT, stopped, should_stop=lambda at=number, asked=asked: next(asked) == at)  # type: ignore[misc]
        assert caught.value.rounds == number
        assert Checkpoint.read(stopped.checkpoint).round == number
        with pytest.raises(CrashError):
            train_config(settings, SPLIT, killed, watch=crash_at(number))
        for folder in (stopped, killed):
            train_config(settings, SPLIT, folder, resume=True)
            assert content(folder) == content(whole)


DENSE = {"cofedrec": 1, "gpfedrec": 2}
"""Methods with whole tables, and how many of them a client that trained has: gpfedrec's server keeps its guide."""


@pytest.mark.parametrize("method", DENSE)
def test_files_hold_the_tables_of_those_who_trained(method: str, tmp_path: Path) -> None:
    """In a catalogue so large that everything else is small beside a table."""
    split, n_items = random_split(n_users=40, n_items=2000), 2000
    table = 4 * 4 * n_items
    for fraction, trained in ((0.05, 2), (0.25, 10)):
        settings = from_dict({"method": {"name": method, "dim": 4, "fraction": fraction}, "run": {"rounds": 1}})
        folder = RunFolder(tmp_path / str(trained))
        result = train_config(settings, split, folder)
        tables = folder.clients.stat().st_size / table
        assert trained <= tables < trained + 3
        assert DENSE[method] * trained <= folder.checkpoint.stat().st_size / table < DENSE[method] * trained + 6
        again = fedrecgel.open(folder.path)
        assert all(again.recommend(user, 3) == result.recommend(user, 3) for user in result.user_ids)


@pytest.mark.parametrize("method", [*DENSE, "pfedrec"])
@pytest.mark.parametrize("selection", ["last", "test"])
def test_tables_of_their_own_resume_to_the_same_bits(method: str, selection: str, tmp_path: Path) -> None:
    settings, whole = config(4, method, selection=selection), RunFolder(tmp_path / "whole")
    settings = replace(settings, method=replace(settings.method, options={**settings.method.options, "fraction": 0.2}))
    train_config(settings, SPLIT, whole)
    for number in (1, 2, 3):
        killed = RunFolder(tmp_path / f"killed{number}")
        with pytest.raises(CrashError):
            train_config(settings, SPLIT, killed, watch=crash_at(number))
        train_config(settings, SPLIT, killed, resume=True)
        assert content(killed) == content(whole)


def test_a_run_can_be_extended(tmp_path: Path) -> None:
    short, long = RunFolder(tmp_path / "short"), RunFolder(tmp_path / "long")
    train_config(config(rounds=4), SPLIT, short)
    train_config(config(rounds=7), SPLIT, short, resume=True)
    train_config(config(rounds=7), SPLIT, long)
    assert content(short) == content(long)


@pytest.mark.parametrize("selection", ["last", "validation", "test"])
def test_the_reported_round_is_the_selected_one(selection: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    result = train_config(config(rounds=8, selection=selection, every=1, ks=(3, 20)), SPLIT, folder)
    values = [line if selection == "test" else line["validation"] for line in result.history]
    best = max(range(8), key=lambda k: values[k]["HR@20"]) + 1  # the earliest of equals
    expected = 8 if selection == "last" else best
    assert result.summary["protocol"]["selected_round"] == expected
    assert result.summary["protocol"]["selection"] == selection
    assert result.metrics == {name: result.history[expected - 1][name] for name in result.metrics}
    straight = train_config(config(rounds=expected, ks=(3, 20)), SPLIT)
    for path, tensors in ((folder.server, straight.shared), (folder.clients, straight.clients.tensors)):
        saved, _, _ = read_tensors(path, dict)
        assert all(torch.equal(saved[name], value) for name, value in tensors.items())
    assert selection == "last" or expected < 8  # else this test shows nothing


def test_no_more_than_two_best_models_are_kept_however_seldom_checkpoints_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the last checkpoint and the newest: each may weigh gigabytes."""
    folder = RunFolder(tmp_path / "run")
    values = iter(range(100))
    settings = replace(config(8, every=1, selection="validation"), checkpoint=CheckpointSettings(every=3))
    monkeypatch.setattr(Training, "evaluate", lambda self, held_out, against: {"HR@10": next(values), "NDCG@10": 0.0})
    kept = [
        (line["round"], sorted(path.stem for path in folder.checkpoint.parent.glob("best-*")))
        for line in Training(settings, SPLIT, folder).steps()
    ]
    assert kept[:2] == [(1, ["best-1"]), (2, ["best-2"])]
    assert kept[2:5] == [(3, ["best-3"]), (4, ["best-3", "best-4"]), (5, ["best-3", "best-5"])]
    assert all(len(names) <= 2 for _, names in kept)


def test_divergence_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    options = {**TINY, "server_optimiser": "sgd", "server_lr": 1e30}
    with pytest.raises(RunError, match=r"(The loss|Uploads) of round \d .* training diverged"):
        fedrecgel.train("fedncf", SPLIT, rounds=9, out=tmp_path, checkpoint={"every": 1}, **options)
    folder = RunFolder(tmp_path)
    saved = Checkpoint.read(folder.checkpoint)
    assert saved.round == len(folder.read_history()) >= 1
    assert not folder.summary.exists()


@pytest.mark.parametrize("method", fedrecgel.METHODS)
def test_what_a_run_writes(method: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    rounds = enough_rounds(method, 3)
    settings = from_dict({**config(rounds, method).to_dict(), "evaluation": {"every": 2}})
    train_config(settings, SPLIT, folder)
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, rounds + 1))
    for line in lines:
        evaluated = line["round"] % 2 == 0 or line["round"] == rounds
        assert set(line) == (ROUND | METRICS | {"validation"} if evaluated else ROUND)
    summary = json.loads(folder.summary.read_text())
    contract: dict[str, set[str]] = {
        "data": {"users", "items", "interactions"},
        "protocol": {"split", "ties", "candidates", "selection", "fingerprint"},
        "metrics": METRICS,
        "metrics_full": METRICS,
        "seconds": {"train", "evaluate", "total"},
        "bytes": {"up", "down"},
        "privacy": {"channel", "epsilon", "delta", "leaves_device"},
        "versions": {"fedrecgel", "torch", "python"},
    }
    for key, inner in contract.items():
        assert inner <= set(summary[key]), key
    assert set(summary["reference"]["popularity"]) >= METRICS
    assert all(text.endswith(".") for text in summary["warnings"])
    assert {"seed", "commit"} <= set(summary)
    assert (summary["dataset"], summary["method"], summary["rounds"]) == ("tiny", method, rounds)
    assert summary["data"] == {"users": 16, "items": 130, "interactions": len(SPLIT.interactions)}
    assert summary["protocol"]["fingerprint"] == SPLIT.fingerprint
    assert summary["bytes"]["up"] == sum(line["bytes_up"] for line in lines) > 0
    here = fedrecgel.METHODS[method]().settled(Problem(SPLIT.n_users, SPLIT.n_items))
    assert summary["privacy"]["leaves_device"] == sorted(here.leaves_device())
    assert all(0 <= value <= 1 for value in summary["metrics_full"].values())
    assert summary["seconds"]["total"] >= summary["seconds"]["train"]


def test_the_popularity_row_is_the_popularity_method() -> None:
    trained = fedrecgel.train("fedncf", SPLIT, rounds=1, **TINY)
    popular = fedrecgel.train("popularity", SPLIT, rounds=1)
    assert trained.reference["popularity"] == popular.metrics
    assert trained.summary["reference_full"]["popularity"] == popular.metrics_full


def same(first: Result, second: Result) -> bool:
    return all(torch.equal(first.shared[name], second.shared[name]) for name in first.shared)


def test_seeds_and_settings_of_the_python_call() -> None:
    def run(**options: Any) -> Result:
        return fedrecgel.train("fedrecgel", SPLIT, rounds=1, evaluation={"full": False}, **{**TINY, **options})

    usual = run()
    assert same(usual, run())
    assert not same(usual, run(seed=1))
    assert not same(usual, run(rho_co=0.5))
    assert usual.summary["metrics_full"] is None
    assert run(variant="paper").summary["variant"] == "paper"
    with pytest.raises(ConfigError, match="Did you mean 'rho_co'"):
        run(rho_c=0.1)


def test_selection_on_validation_needs_validation_items() -> None:
    with pytest.raises(ConfigError, match="validation=True"):
        fedrecgel.train("fedncf", random_interactions().split(), rounds=1, evaluation={"selection": "validation"})


def test_another_split_is_not_resumed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(CrashError):
        train_config(config(), SPLIT, folder, watch=crash_at(3))
    before = folder.metrics.read_bytes()
    with pytest.raises(RunFolderError, match="other data"):
        train_config(config(), random_split(n_users=16, n_items=130, seed=9, validation=True), folder, resume=True)
    assert folder.metrics.read_bytes() == before
