from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.builders import random_interactions

import fedrecgel
from fedrecgel.cli.main import main
from fedrecgel.data.split import leave_one_out
from fedrecgel.export.runtime import Device

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "run"
    fedrecgel.train("ease", leave_one_out(random_interactions(20, 120))).save(path)
    return path


def test_a_bundle_with_titles_in_eight_bits(run: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "titles.csv").write_text('item,title\n100,"Nought, or zéro"\n107,Seven\n', encoding="utf-8")
    words = ["export", str(run), "-o", str(tmp_path / "b"), "--precision", "int8"]
    assert main([*words, "--titles", str(tmp_path / "titles.csv")]) == 0
    printed = capsys.readouterr().out
    assert "14.4 kB  rows.bin" in printed
    assert f"are in {tmp_path / 'b'}. No user's history or vector is among them." in printed
    me = Device(tmp_path / "b")
    assert me.bundle.titles is not None
    assert me.bundle.titles[:2] == ["Nought, or zéro", "101"]
    assert me.bundle.manifest["precision"] == "int8"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "onnx"], "Method 'ease' is no network"),
        (["--titles", "none.csv"], "There is no file none.csv"),
        (["--titles", "other.csv"], "other.csv should have titles for items of the run"),
    ],
)
def test_wrong_input_is_one_clear_sentence(
    words: list[str], message: str, run: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_text("item,title\nx,Other\n")
    assert main(["export", str(run), "-o", "out", *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert not (tmp_path / "out").exists()


def test_serve_shows_the_page_to_this_machine_until_it_is_stopped(run: Path) -> None:
    words = [sys.executable, "-m", "fedrecgel", "serve", str(run), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        found = re.fullmatch(r"The page is at (http://127\.0\.0\.1:\d+/)\. Stop with Ctrl-C\.\n", line)
        assert found is not None, line
        with urllib.request.urlopen(found[1] + "manifest.json", timeout=30) as answer:
            assert json.load(answer)["method"] == "ease"
        with urllib.request.urlopen(found[1], timeout=30) as answer:
            assert b"What leaves this device" in answer.read()
        os.kill(serving.pid, signal.SIGINT)
        assert serving.wait(60) == 130
