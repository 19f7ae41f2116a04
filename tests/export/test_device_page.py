"""What docs/device.md tells to type works as it stands, in at most five lines each."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.layers.pages import ROOT, blocks

from fedrecgel.cli.main import main, parser

BLOCKS = blocks(ROOT / "docs" / "device.md")


def test_the_lines_of_the_page_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "titles.csv").write_text("item,title\n17,Seventeen\n")
    assert len(BLOCKS) == 4
    for language, lines in BLOCKS:
        assert len([line for line in lines if line]) <= 5
        if language == "python":
            words = [sys.executable, "-c", "\n".join(lines)]
            monkeypatch.setenv("PYTHONPATH", "bundle")
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            assert done.stdout.count("Pick(item=") == 3
            assert (tmp_path / "me.json").exists()
            continue
        for line in lines:
            program, *words = shlex.split(line)
            if program == "python":
                done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
                assert len(done.stdout.splitlines()) == 10
            elif words[0] == "serve":  # goes on until it is stopped: tests/cli/test_export.py
                assert parser().parse_args(words).titles == "titles.csv"
            else:
                assert main([*words, "--quiet"] if words[0] == "train" else words) == 0, line
    assert "Seventeen" in (tmp_path / "web" / "items.json").read_text()
    capsys.readouterr()
