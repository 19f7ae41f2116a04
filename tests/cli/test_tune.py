from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedrecgel
from fedrecgel.cli.main import main
from fedrecgel.cli.tune import TrialProgress
from fedrecgel.runs.reference import WITHHELD

Capture = pytest.CaptureFixture[str]
SEARCH = """
[search]
"method.server_lr" = {low = 1e-3, high = 1e-1, log = true}
method.fraction = [0.5, 1.0]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rows = [f"u{user},{(10 * user + k) % 160},{k}" for user in range(20) for k in range(10)]
    (tmp_path / "shop.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    path = tmp_path / "shop.toml"
    path.write_text(
        f"[data]\nname = '{tmp_path / 'shop.csv'}'\n[run]\nrounds = 2\n[evaluation]\nevery = 1\n"
        f"[method]\nname = 'fedncf'\ngmf_dim = 4\nmlp_dim = 6\nfraction = 0.5\n{SEARCH}"
    )
    return path


def tune(config: Path, *words: str) -> int:
    return main(["tune", str(config), "--out", str(config.parent / "search"), *words])


def test_from_a_config_to_a_run_with_the_best_values(config: Path, capsys: Capture) -> None:
    assert tune(config, "--trials", "3") == 0
    printed = capsys.readouterr()
    folder = config.parent / "search"
    trials = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert len(trials) == 3
    assert "popularity" in printed.out
    assert "on the validation items" in printed.out
    for trial in trials:
        assert f"{100 * trial['validation']['NDCG@10']:.2f}" in printed.out
        assert f"trial {trial['number']} finished" in printed.err
        assert {"number", "parameters", "validation", "best_round", "seconds", "state", "commit"} <= trial.keys()
    assert f"fedrecgel train {folder / 'best.toml'}" in printed.out
    best = max(trials, key=lambda trial: trial["validation"]["NDCG@10"])
    assert printed.out.splitlines()[3].split()[:2] == [str(best["number"]), "*" if best["number"] else "(own)"]
    run = config.parent / "run"
    assert main(["train", str(folder / "best.toml"), "--out", str(run), "--quiet"]) == 0
    line = fedrecgel.open(run).history[best["best_round"] - 1]
    assert line["validation"] == best["validation"]


def test_a_search_without_a_config_file(config: Path, capsys: Capture) -> None:
    """Its trials are those of a file that says the same."""
    shop, out = str(config.parent / "shop.csv"), config.parent / "flags"
    words = ["--dataset", shop, "--method", "fedncf", "--rounds", "2", "--trials", "1", "--out", str(out)]
    small = ["--set", "method.gmf_dim=4", "--set", "method.mlp_dim=6", "--set", "method.fraction=0.5"]
    assert main(["tune", *words, *small, "--set", "evaluation.every=1"]) == 0
    config.write_text(config.read_text().partition("[search]")[0])
    assert tune(config, "--trials", "1") == 0
    one, other = ((folder / "search.toml").read_text() for folder in (out, config.parent / "search"))
    assert one == other
    assert main(["tune"]) == 2
    assert "fedrecgel tune --dataset NAME|PATH" in capsys.readouterr().err


def test_the_same_command_goes_on(config: Path, capsys: Capture) -> None:
    assert tune(config, "--trials", "2") == 0
    first = (config.parent / "search" / "trials.jsonl").read_text()
    capsys.readouterr()
    assert tune(config, "--trials", "3") == 0
    printed = capsys.readouterr()
    assert "2 trials are on record" in printed.err
    assert "trial 1 finished" not in printed.err
    assert (config.parent / "search" / "trials.jsonl").read_text().startswith(first)
    assert tune(config.parent / "search" / "search.toml", "--trials", "3") == 0  # the written search is this search


def test_ctrl_c_keeps_what_is_done(config: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(self: TrialProgress, number: int, line: dict[str, object]) -> None:
        if number == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrialProgress, "watch", press)
        assert tune(config, "--trials", "3") == 130
    printed = capsys.readouterr()
    assert "Stopped with 1 of 3 trials on record. Continue with the same command." in printed.err
    assert tune(config, "--trials", "3") == 0
    assert len((config.parent / "search" / "trials.jsonl").read_text().splitlines()) == 3


def test_a_search_shows_no_popularity_row_where_none_is_measured(config: Path, capsys: Capture) -> None:
    config.write_text(config.read_text().replace("[evaluation]\n", "[evaluation]\nreference = 'off'\n"))
    assert tune(config, "--trials", "1") == 0
    printed = capsys.readouterr().out
    assert "\npopularity " not in printed
    assert WITHHELD in printed


def test_the_default_folder(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)
    assert main(["tune", str(config), "--trials", "1"]) == 0
    assert (config.parent / "runs" / "tune-shop-fedncf-s0" / "best.toml").exists()


def test_failed_trials_are_shown(config: Path, capsys: Capture) -> None:
    text = config.read_text().replace("[search]", "server_optimiser = 'sgd'\nserver_lr = 1e30\n[search]")
    config.write_text(text.replace("rounds = 2", "rounds = 8"))
    assert tune(config, "--trials", "2") == 0
    printed = capsys.readouterr()
    assert "trial 0 failed: Uploads of round 2 should be finite" in printed.err
    row = next(line for line in printed.out.splitlines() if line.startswith("0 (own)"))
    assert row.split()[:5] == ["0", "(own)", "-", "-", "-"]


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (("server_lr", "server_l"), [], "Did you mean 'server_lr'?"),
        (("low = 1e-3", "low = 1"), [], "should have low < high"),
        (("[0.5, 1.0]", "[]"), [], "should list different values"),
        (("[0.5, 1.0]", "[0.5, 2.0]"), [], "method.fraction cannot be 2.0"),
        (("fedncf", "fednfc"), [], "Did you mean 'fedncf'?"),
        (("", ""), ["--trials", "0"], "--trials should be at least 1. Found 0."),
    ],
)
def test_wrong_input_is_one_clear_sentence(
    change: tuple[str, str], words: list[str], message: str, config: Path, capsys: Capture
) -> None:
    config.write_text(config.read_text().replace(*change))
    assert tune(config, *words) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert not (config.parent / "search").exists()


def test_train_says_where_a_search_belongs(config: Path, capsys: Capture) -> None:
    assert main(["train", str(config), "--out", str(config.parent / "run")]) == 2
    assert "[search] belongs to `fedrecgel tune`" in capsys.readouterr().err
    assert not (config.parent / "run").exists()
