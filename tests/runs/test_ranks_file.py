"""Run folders of splits with several held-out items, and files of ranks of either format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import random_interactions, random_split

import fedrecgel as fr
from fedrecgel.cli.main import main
from fedrecgel.errors import RunFolderError
from fedrecgel.evaluation.metrics import metrics
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.runs import ranks_file
from fedrecgel.runs.ranks_file import RankFile, read_ranks, write_ranks
from fedrecgel.storage import read_tensors, write_tensors

LINES = [f"u{user},{(11 * user + 3 * k) % 160},{7 * user % 5 + 3 * k}" for user in range(20) for k in range(12)]


def ranks(ptr: list[int] | None = None) -> dict[str, Ranks]:
    whose = None if ptr is None else torch.tensor(ptr)
    return {
        name: Ranks(torch.tensor([3, 0, 7]), torch.tensor([0, 2, 1]), whose) for name in ("candidates", "catalogue")
    }


def test_one_item_per_user_keeps_its_format(tmp_path: Path) -> None:
    path = tmp_path / "ranks.safetensors"
    write_ranks(path, RankFile("t", ranks()), "run")
    tensors, about, _ = read_tensors(path, dict, run="run", unchecked=True)
    assert set(tensors) == {f"{name}/{part}" for name in ("candidates", "catalogue") for part in ("above", "tied")}
    assert about == {"test": "t"}
    assert read_ranks(path).against["candidates"].ptr is None


def test_several_items_per_user(tmp_path: Path) -> None:
    path = tmp_path / "ranks.safetensors"
    write_ranks(path, RankFile("t", ranks([0, 1, 3])), "run")
    found = read_ranks(path).against["catalogue"]
    assert found.ptr is not None
    assert found.ptr.tolist() == [0, 1, 3]
    assert found.above.tolist() == [3, 0, 7]


@pytest.mark.parametrize(
    ("about", "ptr", "words"),
    [
        ({"test": "t", "format": 3}, [0, 1, 3], "format 3, of a later version"),
        ({"test": "t", "format": 2}, None, "Found something else"),
        ({"test": "t"}, [0, 1, 3], "Found something else"),
        ({"test": "t", "format": 2}, [0, 1, 2], "Found something else"),
        ({"test": "t", "format": 2}, [0, 3, 3], "Found something else"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, about: dict[str, Any], ptr: list[int] | None, words: str) -> None:
    path = tmp_path / "ranks.safetensors"
    tensors = {f"candidates/{part}": torch.tensor([3, 0, 7]) for part in ("above", "tied")}
    write_tensors(path, tensors if ptr is None else {**tensors, "ptr": torch.tensor(ptr)}, about, "run")
    with pytest.raises(RunFolderError, match=words):
        read_ranks(path)


def test_the_fingerprint_tells_whose_items_are_whose() -> None:
    data = random_interactions()
    splits = [data.split(kind="ratio", seed=1), data.split(kind="ratio", seed=2), data.split(kind="last-n")]
    assert len({ranks_file.test_fingerprint(split) for split in (*splits, random_split())}) == 4


@pytest.mark.parametrize("kind", ["last-n", "ratio", "temporal", "given"])
def test_a_run_of_every_kind(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held_out = LINES[::4]
    for name, lines in (("mine", LINES), ("rest", held_out)):
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,item,ts", *lines]) + "\n")
    if kind == "given":
        (tmp_path / "mine.csv").write_text("\n".join(["user,item,ts", *sorted(set(LINES) - set(held_out))]) + "\n")
    words = ["train", "--dataset", str(tmp_path / "mine.csv"), "--method", "popularity", "--set", f"split.kind={kind}"]
    words += ["--set", f"split.test={tmp_path / 'rest.csv'}"] if kind == "given" else []
    words += [
        "--set",
        "evaluation.selection=validation",
        "--set",
        "split.candidates=20",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "Recall@10" in shown
    assert "share of the catalogue" in shown
    run = fr.open(tmp_path / "run")
    assert run.summary["protocol"]["split"] == kind
    assert metrics(run.ranks.against["candidates"]) == run.metrics
    assert metrics(run.ranks.against["catalogue"]) == run.metrics_full
    assert set(run.metrics) == {f"{name}@{k}" for name in ("HR", "NDCG", "Recall", "MAP") for k in (5, 10)} | {"MRR"}
    assert 0 < run.summary["coverage"]["Coverage@10"] <= 1
    assert main(["train", str(tmp_path / "run" / "config.toml"), "--out", str(tmp_path / "again"), "--quiet"]) == 0
    assert fr.open(tmp_path / "again").metrics == run.metrics
    assert main([*words[:-2], "--engine", "flower", "--out", str(tmp_path / "nodes")]) == 2
    assert "Engine 'flower' needs split.kind = 'leave-one-out'" in capsys.readouterr().err
