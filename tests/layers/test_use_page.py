"""What docs/use.md tells to type works as it stands, in at most five lines each."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.layers.pages import ROOT, blocks

from fedrecgel.cli.main import main, parser

USERS = ["ann", *(f"u{number}" for number in range(25))]
Capture = pytest.CaptureFixture[str]


def write_clicks(path: Path, users: list[str], items: int) -> None:
    """Eight clicks of each user, on items with titles."""
    rows = [
        f"{user},i{(9 * number + 5 * click) % items},{click},Film {(9 * number + 5 * click) % items}"
        for number, user in enumerate(users)
        for click in range(8)
    ]
    path.write_text("\n".join(["user,item,timestamp,title", *rows]) + "\n")


def test_the_lines_of_the_page_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    write_clicks(tmp_path / "clicks.csv", USERS, 120)
    write_clicks(tmp_path / "more.csv", [*USERS, "newcomer"], 125)
    printed: dict[str, str] = {}
    for language, lines in blocks(ROOT / "docs" / "use.md"):
        assert len([line for line in lines if line]) <= 5
        if language == "python":
            done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
            assert done.stdout.count("Recommendation(item=") == 5
            assert done.stdout.count("title='Film ") == 5
            continue
        for line in lines:
            program, *words = shlex.split(line)
            if program == "python":
                done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
                assert done.stdout.count("Film ") == 10
            elif words[0] == "serve":  # goes on until it is stopped: tests/cli/test_export.py
                assert parser().parse_args(words).folder == "runs/final"
            else:
                assert main(words) == 0, line
                printed[line] = capsys.readouterr().out
    assert printed["fedrecgel recommend runs/final --user ann -k 5"].count("Film ") == 5
    assert printed["fedrecgel recommend runs/final --history i12,i50,i99"].count("Film ") == 10
    assert printed["fedrecgel recommend runs/more --user newcomer -k 5"].count("Film ") == 5
    assert "'ann' are gone" in printed["fedrecgel forget runs/final --user ann"]
    best = (tmp_path / "best.csv").read_text().splitlines()
    assert best[0] == '"user","rank","item","title","score"'
    assert len(best) == 1 + 10 * len(USERS)
    assert json.loads((tmp_path / "bundle" / "items.json").read_text())["titles"][0].startswith("Film ")
    start = json.loads((tmp_path / "runs" / "more" / "summary.json").read_text())["start"]
    assert start["users"] == {"matched": len(USERS), "added": 1, "missing": 0}
