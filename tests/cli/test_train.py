from __future__ import annotations

import json
import signal
import tomllib
from pathlib import Path

import pytest

import fedrecgel
from fedrecgel.cli.common import config_of
from fedrecgel.cli.main import main, parser
from fedrecgel.runs.progress import Progress
from fedrecgel.runs.shipped import shipped_configs

Capture = pytest.CaptureFixture[str]
SMALL = [
    word
    for setting in ("method.gmf_dim=4", "method.mlp_dim=6", "method.fraction=0.5", "evaluation.every=1")
    for word in ("--set", setting)
]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "shop.csv"
    rows = [f"u{user},{(10 * user + k) % 160},{k}" for user in range(20) for k in range(10)]
    path.write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    return path


def train(csv: Path, *words: str, out: str = "run") -> int:
    return main(["train", "--dataset", str(csv), "--rounds", "2", "--out", str(csv.parent / out), *SMALL, *words])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_own_file_from_start_to_table(csv: Path, capsys: Capture) -> None:
    assert train(csv) == 0
    printed = capsys.readouterr()
    assert "popularity" in printed.out
    assert "20 users, 160 items, 200 interactions" in printed.out
    assert "round    2/2" in printed.err
    run = csv.parent / "run"
    names = {path.name for path in run.iterdir()}
    assert names == {
        "config.toml",
        "metrics.jsonl",
        "summary.json",
        "server.safetensors",
        "clients.safetensors",
        "ranks.safetensors",
        "checkpoint",
    }
    summary = json.loads((run / "summary.json").read_text())
    for name, value in summary["metrics"].items():
        assert name in printed.out
        assert f"{100 * value:.2f}" in printed.out
    assert len(fedrecgel.open(run).recommend("u3", k=4)) == 4


def test_a_finished_run_is_shown_again(csv: Path, capsys: Capture) -> None:
    train(csv)
    first = capsys.readouterr().out
    before = files(csv.parent / "run")
    assert train(csv) == 0
    again = capsys.readouterr().out
    assert again.splitlines()[:6] == first.splitlines()[:6]
    assert "Nothing to do" in again
    assert files(csv.parent / "run") == before


def test_the_written_config_repeats_the_run(csv: Path) -> None:
    train(csv)
    assert main(["train", str(csv.parent / "run" / "config.toml"), "--out", str(csv.parent / "again"), "--quiet"]) == 0
    first, second = (fedrecgel.open(csv.parent / name) for name in ("run", "again"))
    assert first.metrics == second.metrics
    assert first.recommend("u0") == second.recommend("u0")
    assert first.config.to_dict() == second.config.to_dict()


def test_quiet(csv: Path, capsys: Capture) -> None:
    assert train(csv, "--quiet") == 0
    assert train(csv, "--quiet") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "fedrecgl"], "Did you mean 'fedrecgel'?"),
        (["--dataset", "filmtrus"], "Did you mean 'filmtrust'?"),
        (["--set", "method.rho_c=1"], "Did you mean 'rho_co'?"),
        (["--set", "methods.rho_co=1"], "Did you mean 'method'?"),
        (["--set", "rho_co"], "--set takes section.key=value"),
        (["--rounds", "0"], "run.rounds cannot be 0"),
        (["--device", "abacus"], "Try 'cpu'"),
        (["--device", "meta"], "Try 'cpu'"),
        (["--set", "data.user=item"], "data.user and data.item should be two columns"),
        (["--set", "method.rho_co=1", "--set", "method.name=fedncf"], "Unknown key 'rho_co'"),
        (["--channel", "plane"], "Did you mean 'plain'?"),
        (["--set", "split.candidates=155"], "Lower split.candidates"),
        (["--resume"], "no run to resume"),
        (["absent.toml"], "There is no config file 'absent.toml'"),
    ],
)
def test_wrong_input_is_one_clear_sentence(words: list[str], message: str, csv: Path, capsys: Capture) -> None:
    assert train(csv, *words) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.err.splitlines()[-1].startswith("fedrecgel: ")
    assert printed.out == ""
    assert not (csv.parent / "run").exists()


def test_a_foreign_folder_stays_untouched(csv: Path, capsys: Capture) -> None:
    (csv.parent / "run").mkdir()
    (csv.parent / "run" / "thesis.tex").write_text("years of work")
    assert train(csv) == 2
    assert "is no run folder" in capsys.readouterr().err
    assert files(csv.parent / "run") == {"thesis.tex": b"years of work"}


def test_another_run_stays_untouched(csv: Path, capsys: Capture) -> None:
    train(csv)
    before = files(csv.parent / "run")
    assert train(csv, "--seed", "7") == 2
    assert "there run.seed = 0, here 7" in capsys.readouterr().err
    assert files(csv.parent / "run") == before


def test_a_folder_below_a_file_is_wrong_input(csv: Path, capsys: Capture) -> None:
    assert train(csv, out="shop.csv/run") == 2
    assert "--out should be a folder that can be written" in capsys.readouterr().err


def test_a_failed_run_exits_with_1(csv: Path, capsys: Capture) -> None:
    assert train(csv, "--set", "gate.max_norm=1e-9") == 1
    assert "training diverged" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "code"), [(["--method", "fedrecgl"], 2), (["--set", "gate.max_norm=1e-9"], 1)])
def test_debug_shows_the_traceback_and_keeps_the_exit_code(
    words: list[str], code: int, csv: Path, capsys: Capture
) -> None:
    assert train(csv, *words, "--debug") == code
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_the_round_and_can_be_resumed(csv: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    watch = Progress.watch
    pressed = iter([True])

    def press(self: Progress, line: dict[str, object]) -> None:
        watch(self, line)
        if next(pressed, False):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "watch", press)
    assert train(csv, "--set", "run.rounds=4") == 130
    assert "Stopped after round 2. Continue with the same command and --resume." in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert train(csv, "--set", "run.rounds=4", "--resume", "--quiet") == 0
    assert train(csv, "--set", "run.rounds=4", "--quiet", out="straight") == 0
    first, second = (fedrecgel.open(csv.parent / name) for name in ("run", "straight"))
    assert first.metrics == second.metrics
    assert first.recommend("u0") == second.recommend("u0")


def test_tuned_settings_come_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Also outside a checkout; none for an own file, which is said with the way out."""
    monkeypatch.chdir(tmp_path)
    args = parser(["train"]).parse_args(["train", "--config", "tuned", "--dataset", "filmtrust", "--method", "fedmf"])
    shipped = tomllib.loads((shipped_configs() / "filmtrust" / "fedmf.toml").read_text(encoding="utf-8"))
    options = config_of(args).method.options
    assert {"fraction", "lr", "server_lr"} <= options.keys()
    assert {key: options[key] for key in ("lr", "server_lr")} == {
        key: shipped["method"][key] for key in ("lr", "server_lr")
    }
    assert main(["train", "--config", "tuned", "--dataset", "mine.csv", "--method", "fedmf"]) == 2
    assert "or search: fedrecgel tune --dataset mine.csv --method fedmf." in capsys.readouterr().err


def test_a_final_model_takes_rounds_and_settings_of_a_finished_run(csv: Path, capsys: Capture) -> None:
    train(csv)
    run, final = csv.parent / "run", csv.parent / "final"
    capsys.readouterr()
    assert main(["train", "--final", "--rounds-of", str(run), "--out", str(final)]) == 0
    printed = capsys.readouterr().out
    assert "fedrecgel: a final model" in printed
    assert "held out: nothing" in printed
    summary = json.loads((final / "summary.json").read_text())
    assert (summary["rounds"], summary["metrics"], summary["protocol"]["split"]) == (2, {}, "none: all interactions")
    assert any("nothing was measured" in text.lower() for text in summary["warnings"])
    opened = fedrecgel.open(final)
    assert opened.config.method == fedrecgel.open(run).config.method
    assert len(opened.train.items) == 200


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--final"], "A final model measures nothing, so it cannot tell when to stop. Give --rounds N"),
        (["--rounds-of", "run"], "--rounds-of says how long a final model trains. Add --final, or give --rounds N."),
        (["--final", "--rounds-of", "nowhere"], "'nowhere' holds no finished run"),
    ],
)
def test_what_a_final_model_needs_is_asked_for(
    csv: Path, words: list[str], reason: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(csv.parent)
    assert main(["train", "--dataset", str(csv), *words]) == 2
    assert reason in capsys.readouterr().err
    assert not (csv.parent / "runs").exists()


def more_rows(csv: Path) -> Path:
    """Yesterday's clicks beside the earlier ones, of a new user and on new items; one user left."""
    lines = csv.read_text().splitlines()
    rows = [line for line in lines[1:] if not line.startswith("u7,")]
    rows += [f"{user},{item},{100 + item}" for user in ("u3", "new") for item in range(150, 165)]
    path = csv.with_name("more.csv")
    path.write_text("\n".join([lines[0], *rows]) + "\n")
    return path


def test_a_run_goes_on_with_new_data(csv: Path, capsys: Capture) -> None:
    train(csv)
    run, more = csv.parent / "run", csv.parent / "on"
    words = ["train", "--from", str(run), "--dataset", str(more_rows(csv)), "--out"]
    capsys.readouterr()
    assert main([*words, str(more)]) == 0
    printed = capsys.readouterr()
    assert f"Continues {run}: 19 users, 150 items and 190 interactions are known, 1, 5 and 30 are new." in printed.err
    assert "1 users of the run that was continued are not in the new data" in printed.out
    summary = json.loads((more / "summary.json").read_text())
    assert summary["start"]["users"] == {"matched": 19, "added": 1, "missing": 1}
    assert summary["start"]["missing_users"] == ["u7"]
    assert main(["train", str(more / "config.toml"), "--out", str(csv.parent / "again"), "--quiet"]) == 0
    again = files(csv.parent / "again")
    assert all(again[name] == files(more)[name] for name in ("server.safetensors", "clients.safetensors"))
    assert main([*words, str(csv.parent / "long"), "--rounds", "3", "--quiet"]) == 0
    assert main([*words, str(more), "--rounds", "3", "--resume", "--quiet"]) == 0
    assert files(more)["server.safetensors"] == files(csv.parent / "long")["server.safetensors"]
    capsys.readouterr()
    assert main([*words, str(run)]) == 2
    assert "belongs to another run" in capsys.readouterr().err
    assert main([*words, str(csv.parent / "other"), "--method", "fedmf"]) == 2
    assert "A run is continued with its own method" in capsys.readouterr().err
    assert main([*words, str(csv.parent / "other"), "--resume"]) == 2
    assert "There is no run to resume" in capsys.readouterr().err
