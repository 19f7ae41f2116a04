from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from fedrecgel.cli.main import main
from fedrecgel.methods import METHODS

Capture = pytest.CaptureFixture[str]


def test_list(capsys: Capture) -> None:
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(METHODS)
    assert "WWW 2026" in lines[list(METHODS).index("fedrecgel")]


def test_json_is_the_contract(capsys: Capture) -> None:
    assert main(["methods", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = {entry["name"]: entry for entry in json.loads(printed.out)}
    assert list(found) == list(METHODS)
    for name, entry in found.items():
        assert {"name", "kind", "paper", "hyperparameters", "leaves_device", "server_needs"} <= set(entry)
        assert entry["hyperparameters"] == json.loads(json.dumps(asdict(METHODS[name]())))
        assert entry["leaves_device"] == sorted(METHODS[name]().leaves_device())
    assert (found["popularity"]["kind"], found["fedncf"]["kind"]) == ("reference", "federated")
    assert (found["popularity"]["server_needs"], found["fedncf"]["server_needs"]) == ("linear", "sum")


@pytest.mark.parametrize("name", METHODS)
def test_one_method(name: str, capsys: Capture) -> None:
    assert main(["methods", name]) == 0
    text = capsys.readouterr().out
    assert "Idea" in text
    for parameter, default in asdict(METHODS[name]()).items():
        assert f"{parameter} = {default}" in text
    assert f"Leaves the device at these defaults: {', '.join(sorted(METHODS[name]().leaves_device()))}" in text
    assert main(["methods", name, "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == [name]


def test_unknown_method(capsys: Capture) -> None:
    assert main(["methods", "fedncff"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "fedrecgel: Unknown method 'fedncff'. Did you mean 'fedncf'?\n"
    assert printed.out == ""


def test_a_method_says_what_the_server_sees_over_each_channel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "popularity"]) == 0
    printed = capsys.readouterr().out
    assert "secagg    only their sum, of cohorts from 100 clients on" in printed
    assert "dp        every upload, clipped; its method reads their sum with noise" in printed
    assert main(["methods", "gpfedrec", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)[0]["server_sees"]
    assert seen["plain"] == "every upload"
    assert seen["secagg"] == seen["dp"] == "refused: the server needs more"
    assert main(["methods", "spectra", "--json"]) == 0
    assert "from 7,680 clients on" in json.loads(capsys.readouterr().out)[0]["server_sees"]["secagg"]
