from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tests.builders import TINY, random_split

import fedrecgel
from fedrecgel.cli import recommend as cli_recommend
from fedrecgel.cli import user_progress as progress
from fedrecgel.cli.main import main
from fedrecgel.runs import everyone, recommend

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recommend") / "run"
    fedrecgel.train("fedncf", random_split(n_users=14), rounds=2, **TINY).save(path)
    return path


def test_one_user_for_people_and_for_programs(run: Path, capsys: Capture) -> None:
    expected = fedrecgel.open(run).recommend("u3", k=4)
    assert main(["recommend", str(run), "--user", "u3", "-k", "4", "--json"]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed["user"] == "u3"
    assert [(row["rank"], row["item"], row["score"]) for row in printed["items"]] == [
        (rank, best.item, best.score) for rank, best in enumerate(expected, 1)
    ]
    assert main(["recommend", str(run), "--user", "u3", "-k", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["rank", "item", "score"],
        *([str(rank), str(best.item), f"{best.score:.4f}"] for rank, best in enumerate(expected, 1)),
    ]


def test_all_users(run: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "all.parquet"
    assert main(["recommend", str(run), "--all", "-k", "3", "-o", str(path)]) == 0
    assert f"42 recommendations for 14 users are in {path}" in capsys.readouterr().out
    table = pyarrow.parquet.read_table(path).to_pydict()
    assert table["user"] == [f"u{user}" for user in range(14) for _ in range(3)]
    assert table["rank"] == [1, 2, 3] * 14
    for user in (0, 9):
        assert table["item"][3 * user : 3 * user + 3] == [
            best.item for best in fedrecgel.open(run).recommend(f"u{user}", k=3)
        ]


def test_stopped_by_ctrl_c_and_continued(
    run: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["recommend", str(run), "--all", "-k", "3", "-o", str(tmp_path / "all.csv")]
    monkeypatch.setattr(everyone, "SCORES_PER_PART", 1)
    monkeypatch.setattr(progress, "FIRST_LINE", 0.0)
    monkeypatch.setattr(progress, "NEXT_LINE", 0.0)
    monkeypatch.setattr(everyone.Everyone, "_at_once", 5)
    monkeypatch.setattr(cli_recommend, "ESTIMATED_FROM", 0)
    blocks, find = 0, recommend.best_items

    def press(*arguments: Any, **options: Any) -> Any:
        nonlocal blocks
        blocks += 1
        if blocks == 4:  # two of them behind the estimate
            raise KeyboardInterrupt
        return find(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(everyone, "best_items", press)
        assert main(words) == 130
    printed = capsys.readouterr()
    assert "14 users … About 0 s for all of them on" in printed.err
    assert "5 of 14 users, 00:00 left" in printed.err
    assert f"Stopped. What is done is in {tmp_path / 'all.csv.parts'}; continue with the same command." in printed.err
    assert printed.out == ""
    assert main([*words[:4], "4", *words[5:]]) == 2
    assert "delete the folder, or choose another -o" in capsys.readouterr().err
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "5 of 14 users were done before\n10 of 14 users" in printed.err
    assert "42 recommendations for 14 users" in printed.out
    fedrecgel.open(run).recommend_all(tmp_path / "whole.csv", 3)
    assert (tmp_path / "all.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--user", "u33"], "Unknown user 'u33'. Did you mean 'u3'?"),
        (["--user", "u3", "-k", "0"], "k should be at least 1. Found 0."),
        (["--user", "u3", "-o", "x.csv"], "-o is the file of --all"),
        (["--all"], "Name it with -o FILE.parquet"),
        (["--all", "-o", "x.json"], "-o should end with .parquet or .csv. Found 'x.json'."),
        (["--all", "-o", "x.csv", "--json"], "--json prints the recommendations of one user"),
    ],
)
def test_wrong_input_is_one_clear_sentence(words: list[str], message: str, run: Path, capsys: Capture) -> None:
    assert main(["recommend", str(run), *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_only_a_finished_run_recommends(run: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "config.toml").write_bytes((run / "config.toml").read_bytes())
    for folder, message in ((tmp_path, "summary.json is missing"), (tmp_path / "absent", "no config.toml")):
        assert main(["recommend", str(folder), "--user", "u3"]) == 2
        assert message in capsys.readouterr().err
