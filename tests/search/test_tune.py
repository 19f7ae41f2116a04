from __future__ import annotations

import ast
import json
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.builders import TINY, random_interactions, random_split

import fedrecgel
from fedrecgel.errors import ConfigError, RunError, RunFolderError, StorageError
from fedrecgel.runs.config import Config, from_dict, read_config
from fedrecgel.runs.train import train_config
from fedrecgel.runs.training import Line
from fedrecgel.search import proposals
from fedrecgel.search.space import Space, read_space
from fedrecgel.search.trials import SearchFolder, Trial, best_of
from fedrecgel.search.tune import for_search, popularity, search, without_test

SPLIT = random_split(n_users=16, n_items=130, validation=True)
SPACE = {
    "method.server_lr": {"low": 1e-3, "high": 1e-1, "log": True},
    "method.chunk": {"low": 8, "high": 64},
    "method.fraction": [0.25, 0.5, 1.0],
}


def config(rounds: int = 4, **method: Any) -> Config:
    options = {"name": "fedncf", **TINY, "server_lr": 1e-3, **method}
    return from_dict(
        {"data": {"name": "tiny"}, "method": options, "run": {"rounds": rounds}, "evaluation": {"every": 1}}
    )


def space(table: dict[str, Any] = SPACE) -> Space:
    return read_space(table, config())


def run(path: Path, trials: int, settings: Config | None = None, **changes: Any) -> list[Trial]:
    folder = SearchFolder(path)
    arguments = {"space": space(), "split": SPLIT, **changes}
    list(search(settings or config(), folder=folder, trials=trials, **arguments))
    return [msgspec.json.decode(line, type=Trial) for line in folder.trials.read_text().splitlines()]


def timeless(trials: list[Trial]) -> list[Trial]:
    return [replace(trial, seconds=0.0) for trial in trials]


Searched = tuple[Path, list[Trial]]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    path = tmp_path_factory.mktemp("tune") / "search"
    return path, run(path, 14)


def test_trial_0_is_the_config_and_the_others_stay_in_the_space(searched: Searched) -> None:
    _, trials = searched
    assert [trial.number for trial in trials] == list(range(14))
    assert trials[0].parameters == {"method.server_lr": 1e-3, "method.chunk": 128, "method.fraction": 0.5}
    for trial in trials[1:]:
        assert trial.parameters.keys() == SPACE.keys()
        assert all(value in space()[key] for key, value in trial.parameters.items())
        assert type(trial.parameters["method.chunk"]) is int
    assert len({json.dumps(trial.parameters) for trial in trials}) == 14
    assert all(trial.split == SPLIT.fingerprint for trial in trials)


def test_a_trial_is_the_run_its_config_gives(searched: Searched) -> None:
    path, trials = searched
    best = best_of(trials)
    assert best is not None
    written = read_config(path / "best.toml")
    assert written.evaluation.selection == "validation"
    assert written.split.validation
    assert written.run.rounds == 4
    history = train_config(written, SPLIT).history
    curve = [(line["round"], line["validation"]["NDCG@10"]) for line in history]
    assert best.curve == curve
    assert best.score == max(value for _, value in curve)
    assert best.best_round is not None
    assert best.validation == history[best.best_round - 1]["validation"]
    assert all(best.score >= trial.score for trial in trials if trial.validation is not None)


def test_no_test_number_can_reach_a_search(searched: Searched, tmp_path: Path) -> None:
    """Other test items, the same search, to the last bit; and rounds report nothing but validation metrics."""
    _, trials = searched
    other = replace(SPLIT, test=np.roll(SPLIT.test, 1), candidates=SPLIT.candidates[::-1].copy())
    assert other.fingerprint != SPLIT.fingerprint
    lines: list[Line] = []
    again = run(tmp_path / "other", 14, split=other, watch=lambda number, line: lines.append(line))
    assert [replace(trial, split=SPLIT.fingerprint) for trial in timeless(again)] == timeless(trials)
    shown = {value for trial in trials for _, value in trial.curve}
    assert {line["NDCG@10"] for line in lines} == shown
    blind = without_test(SPLIT)
    assert SPLIT.validation is not None
    assert np.array_equal(blind.test, SPLIT.validation)
    assert blind.validation is None


def test_an_interrupted_search_goes_on_as_if_it_had_not_been(searched: Searched, tmp_path: Path) -> None:
    _, straight = searched

    def press(number: int, line: Line) -> None:
        if (number, line["round"]) == (12, 1):
            raise KeyboardInterrupt

    path = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        run(path, 14, watch=press)
    assert len((path / "trials.jsonl").read_text().splitlines()) == 12
    assert (path / "best.toml").exists()
    with (path / "trials.jsonl").open("a") as file:
        file.write('{"number": 12, "para')  # a line that a crash cut off
    assert timeless(run(path, 13)) == timeless(straight[:13])
    assert timeless(run(path, 14)) == timeless(straight)
    assert timeless(run(path, 5)) == timeless(straight)  # fewer than there are: nothing to do


def test_hopeless_trials_are_stopped_by_one_rule(tmp_path: Path) -> None:
    table = {"method.server_lr": {"low": 1e-3, "high": 1e-1, "log": True}}
    trials = run(tmp_path, 12, config(rounds=6), space=read_space(table, config()))
    stopped = [trial for trial in trials if trial.state == "stopped"]
    assert stopped, "else this test shows nothing"
    for trial in stopped:
        rounds = trial.curve[-1][0]
        assert rounds in (1, 2, 3), "the first evaluations behind a tenth, a quarter and half of the rounds"
        there = [dict(one.curve) for one in trials[: trial.number] if one.curve[-1][0] >= rounds]
        assert len(there) >= proposals.PATIENCE
        reached = [max(value for at, value in curve.items() if at <= rounds) for curve in there]
        assert trial.score < np.median(reached)
    best = best_of(trials)
    assert best is not None
    assert best.state == "finished"


def test_trials_at_the_same_time_are_recorded_in_order_and_always_the_same(tmp_path: Path) -> None:
    """Trial n learns from trials 0 … n - jobs, so nothing depends on who is faster; a record can be continued."""
    paths = [tmp_path / "straight", tmp_path / "stopped"]
    straight = run(paths[0], 13, jobs=2)
    assert [trial.number for trial in straight] == list(range(13))
    assert {trial.jobs for trial in straight} == {2}
    going = search(config(), space(), SPLIT, SearchFolder(paths[1]), trials=13, jobs=2)
    for _ in range(11):
        next(going)
    assert isinstance(going, Generator)
    going.close()  # as Ctrl-C does
    assert timeless(run(paths[1], 13, jobs=2)) == timeless(straight)
    alone = run(tmp_path / "alone", 10)
    assert [trial.parameters for trial in alone] == [trial.parameters for trial in straight[:10]]


def test_failed_trials_are_recorded_and_the_search_goes_on(tmp_path: Path) -> None:
    settings = config(rounds=8, server_optimiser="sgd")
    trials = run(tmp_path, 5, settings, space=read_space({"method.server_lr": [1e-3, 1e30]}, settings))
    states = {trial.parameters["method.server_lr"]: trial.state for trial in trials}
    assert states == {1e-3: "finished", 1e30: "failed"}
    for trial in trials:
        if trial.state == "failed":
            assert "training diverged" in (trial.reason or "")
            assert trial.validation is None
    assert read_config(tmp_path / "best.toml").to_dict()["method"]["server_lr"] == 1e-3


def test_a_search_in_which_all_fails_says_so(tmp_path: Path) -> None:
    settings = config(rounds=8, server_optimiser="sgd", server_lr=1e30)
    for _ in range(2):  # also when there is nothing left to try
        with pytest.raises(RunError, match=r"All 2 trials failed\. The last one: Uploads of round 2 should be finite"):
            run(tmp_path, 2, settings, space=read_space({"method.server_lr": [1e29, 1e30]}, settings))
    assert not (tmp_path / "best.toml").exists()


def test_popularity_is_measured_on_the_same_items() -> None:
    reference = train_config(from_dict({**config().to_dict(), "method": {"name": "popularity"}}), SPLIT)
    assert popularity(config(), SPLIT) == reference.history[-1]["validation"]


def test_a_folder_belongs_to_one_search(searched: Searched, tmp_path: Path) -> None:
    path, _ = searched
    before = (path / "trials.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match=r"another search: there run\.rounds = 4, here 5"):
        run(path, 15, config(rounds=5))
    with pytest.raises(RunFolderError, match=r"another search: there search\.method\.chunk"):
        run(path, 15, space=space({**SPACE, "method.chunk": {"low": 9, "high": 64}}))
    with pytest.raises(RunFolderError, match="on other data"):
        run(path, 15, split=random_split(n_users=16, n_items=130, seed=3, validation=True))
    assert (path / "trials.jsonl").read_bytes() == before
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match="holds no search"):
        run(tmp_path, 1)
    with pytest.raises(RunFolderError, match="is a file"):
        run(tmp_path / "thesis.tex", 1)


@pytest.mark.parametrize("broken", ['{"number": 0}\n', "nonsense\n", "{}\n"])
def test_a_damaged_record_is_refused(broken: str, tmp_path: Path) -> None:
    run(tmp_path, 1)
    (tmp_path / "trials.jsonl").write_text(broken)
    with pytest.raises(StorageError, match=r"trials\.jsonl' cannot be read"):
        run(tmp_path, 2)


def test_a_record_with_a_gap_is_refused(tmp_path: Path) -> None:
    run(tmp_path, 3)
    lines = (tmp_path / "trials.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "trials.jsonl").write_text(lines[0] + lines[2])
    with pytest.raises(StorageError, match="should count trials from 0"):
        run(tmp_path, 4)


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        SearchFolder(tmp_path).open(for_search(config()), space()),
        pytest.raises(RunFolderError, match="Another process"),
    ):
        run(tmp_path, 1)


def test_a_search_needs_validation_items(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="validation=True"):
        run(tmp_path, 1, split=random_interactions().split())


def test_without_optuna_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "fedrecgel.search.proposals", raising=False)
    monkeypatch.delattr("fedrecgel.search.proposals", raising=False)
    with pytest.raises(ConfigError, match=r"needs optuna.*\[tune\]"):
        run(tmp_path, 1)


def test_only_the_proposals_import_optuna() -> None:
    package = Path(fedrecgel.__file__).parent
    importing = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            importing |= {path.name for name in names if name.split(".")[0] == "optuna"}
    assert importing == {"proposals.py"}
