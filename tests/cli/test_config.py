from __future__ import annotations

import json

import pytest

from fedrecgel.cli.main import main
from fedrecgel.runs.config import section_types

Capture = pytest.CaptureFixture[str]


def test_every_section_and_its_settings_are_explained(capsys: Capture) -> None:
    assert main(["config"]) == 0
    text = capsys.readouterr().out
    for section in section_types():
        assert f"[{section}]" in text
    for key in ("data.name = demo", "split.ties", "run.rounds = 100", "secagg.min_clients"):
        assert key in text


def test_one_section_as_json(capsys: Capture) -> None:
    assert main(["config", "run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"run"}
    assert found["run"]["rounds"]["default"] == 100
    assert "Communication rounds" in found["run"]["rounds"]["meaning"]


def test_an_unknown_section_names_the_nearest(capsys: Capture) -> None:
    assert main(["config", "evalation"]) == 2
    assert capsys.readouterr().err == "fedrecgel: Unknown section 'evalation'. Did you mean 'evaluation'?\n"
