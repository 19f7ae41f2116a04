from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
import torch

from fedrecgel.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_json(capsys: Capture) -> None:
    assert main(["doctor", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert printed.err == ""
    assert found["versions"]["torch"] == torch.__version__
    assert found["python"] == platform.python_version()
    assert "cpu" in found["devices"]
    assert isinstance(found["advice"], list)


def test_for_people(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.delenv("FEDRECGEL_DATA", raising=False)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"torch {torch.__version__}" in text
    assert text.endswith("- Nothing to fix.\n")


def test_advice(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("FEDRECGEL_DATA", str(tmp_path / "absent"))
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "which is no folder" in text
    assert "OMP_WAIT_POLICY=PASSIVE" in text


def test_data_found(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "filmtrust").mkdir()
    (tmp_path / "filmtrust" / "ratings.txt").touch()
    monkeypatch.setenv("FEDRECGEL_DATA", str(tmp_path))
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data_found"] == ["filmtrust/ratings.txt"]
