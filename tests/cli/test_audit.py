"""`fedrecgel audit`: numbers for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedrecgel.audit.record import read_audit
from fedrecgel.cli.main import main

DATA = ["--dataset", "synthetic", "--set", "data.users=40", "--set", "data.items=150", "--set", "data.interactions=400"]
DATA += ["--set", "split.candidates=50", "--method", "fedmf", "--set", "method.dim=4"]


def test_a_config_is_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mine.toml"
    config.write_text("[run]\nrounds = 2\n")
    assert main(["audit", str(config), *DATA]) == 0
    out = capsys.readouterr().out
    assert "fedmf on synthetic, channel plain, 40 clients a round" in out
    assert "gradient sign          1.000" in out
    assert "Promotion, malicious 5% limited by round: ER@10" in out
    assert out.rstrip().endswith("finds them with F1 1.00.")


def test_a_run_is_audited_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", "--out", str(out), "--rounds", "1", "--quiet", *DATA]) == 0
    capsys.readouterr()
    assert main(["audit", str(out), "--json", "--no-promotion"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["channel"] == "plain"
    assert found["cohort"] == 40
    assert found["attacks"]["gradient_sign"]["f1"] > 0.99


def test_no_run_is_said_to_be_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path)]) == 2
    assert "has no config.toml" in capsys.readouterr().err


def test_what_was_found_stays_beside_a_run_with_its_own_settings(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["train", "--out", str(out), "--rounds", "1", "--quiet", *DATA]) == 0
    assert main(["audit", str(out), "--json", "--no-promotion", "--set", "run.seed=1"]) == 0
    assert read_audit(out) is None
    assert main(["audit", str(out), "--json", "--no-promotion"]) == 0
    found = read_audit(out)
    assert found is not None
    assert (found.channel, found.cohort) == ("plain", 40)
    assert found.attacks["gradient_sign"].f1 > 0.99
    assert "can read users' histories" in found.sentence
