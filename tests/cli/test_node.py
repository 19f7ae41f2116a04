from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import random_interactions

from fedrecgel.cli.main import main


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    found, place = random_interactions(12, 150), tmp_path / "tiny.csv"
    rows = [f"{user},{item}" for user, item in zip(found.users, found.items, strict=True)]
    place.write_text("\n".join(["user,item", *rows]) + "\n")
    words = ["data", "shard", str(place), "--nodes", "2", "--out", str(tmp_path / "shards")]
    assert main([*words, "--set", "split.candidates=30"]) == 0
    return tmp_path / "shards"


def test_every_node_gets_a_folder(shards: Path) -> None:
    assert sorted(place.name for place in shards.iterdir()) == ["node-0", "node-1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --certificate, or --insecure"),
        (["--insecure", "--certificate", "ca.crt"], "Give one of them"),
        (["--insecure", "--key", "node-0"], "worth nothing without TLS"),
        (["--certificate", "missing.crt"], "There is no file 'missing.crt'"),
    ],
)
def test_a_node_is_safe_or_says_that_it_is_not(
    words: list[str], message: str, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["node", "--shard", str(shards / "node-0"), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_node_needs_a_shard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--shard", str(tmp_path), "--insecure"]) == 2
    assert "A shard should be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--engine", "flower", "--device", "cuda"], "needs run.device = 'cpu'"),
        (["--engine", "flower", "--channel", "bfv"], "needs run.channel = 'plain'. Found 'bfv'"),
        (["--engine", "flower", "--set", "faults.dropout=0.5"], "Unknown section 'faults'"),
        (["--engine", "flour"], "Did you mean 'flower'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), *settings]) == 2
    assert message in capsys.readouterr().err
