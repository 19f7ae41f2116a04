from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from tests.builders import random_interactions
from tests.engine.flower.masked import write_key

from fedrecgel.cli.main import main
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.runs.config import from_dict
from fedrecgel.runs.flower import work_of
from fedrecgel.runs.policy import read_policy


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


def test_a_node_that_hosts_few_users_must_be_told_so(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--shard", str(shards / "node-0"), "--insecure"]) == 2
    assert "at least policy.min_users = 10 users" in capsys.readouterr().err


def test_the_printed_policy_is_the_default_and_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "policy"]) == 0
    place = tmp_path / "policy.toml"
    place.write_text(capsys.readouterr().out)
    assert read_policy(str(place)) == Policy() == read_policy("")
    assert all(f"\n{entry.name} = " in place.read_text() for entry in fields(Policy) if entry.name != "peers")


def test_a_policy_names_peers_by_their_public_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {f"node-{number}": write_key(tmp_path / f"node-{number}") for number in range(2)}
    for name, line in lines.items():
        (tmp_path / f"{name}.pub").write_text(line + "\n")
    assert main(["node", "policy", "--peers", *(str(tmp_path / f"{name}.pub") for name in lines)]) == 0
    place = tmp_path / "policy.toml"
    place.write_text(capsys.readouterr().out)
    assert read_policy(str(place)) == Policy(peers=lines, channels=("secagg",)), "no server gets plain instead"
    assert main(["node", "policy", "--peers", str(tmp_path / "node-0")]) == 2
    assert "[peers] should hold lines of the nodes' .pub files" in capsys.readouterr().err
    assert main(["node", "policy", "--peers", str(tmp_path / "nobody.pub")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(("reference", "methods"), [("auto", ("fedmf",)), ("on", ("fedmf", "popularity"))])
def test_a_policy_for_one_run_can_be_printed(
    reference: str, methods: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "method.name=fedmf", "--set", f"evaluation.reference={reference}"]
    assert main(["node", "policy", *settings]) == 0
    place = tmp_path / "policy.toml"
    place.write_text(capsys.readouterr().out)
    policy = read_policy(str(place))
    assert policy.methods == methods, "counts of items leave for a row that is asked for, and for no other"
    evaluation = {"reference": reference}
    run = from_dict({"method": {"name": "fedmf"}, "run": {"engine": "flower", "rounds": 7}, "evaluation": evaluation})
    assert work_of(json.dumps(run.to_dict())).fingerprint == policy.runs[0]  # rounds have a limit of their own


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[policy]\nmin_user = 3\n", "Unknown key 'min_user' in [policy]. Did you mean 'min_users'?"),
        ("[polcy]\n", "Unknown section 'polcy'"),
        ("min_users = 3\n", "Unknown section 'min_users'"),
        ("policy = 3\n", "should be a table"),
        ("[policy]\nmin_users = 0\n", "policy.min_users cannot be 0"),
        ("[policy]\nmethods = 'fedmf'\n", "policy.methods cannot be 'fedmf'"),
        ("[policy", "cannot be read"),
    ],
)
def test_a_wrong_policy_starts_no_node(
    text: str, message: str, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "policy.toml"
    place.write_text(text)
    assert main(["node", "--shard", str(shards / "node-0"), "--insecure", "--policy", str(place)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--engine", "flower", "--device", "cuda"], "needs run.device = 'cpu'"),
        (["--engine", "flower", "--channel", "bfv"], "Found 'bfv'"),
        (["--engine", "flower", "--set", "faults.dropout=0.5"], "Unknown section 'faults'"),
        (["--engine", "flour"], "Did you mean 'flower'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), *settings]) == 2
    assert message in capsys.readouterr().err
