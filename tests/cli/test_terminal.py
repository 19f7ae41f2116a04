"""Names that steer a terminal are printed as text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedrecgel.cli.main import main

Capture = pytest.CaptureFixture[str]
ROWS = "".join(f"u{user},{item}\n" for user in range(3) for item in range(6))


@pytest.mark.parametrize("name", ["a\x1b]0;b\x07", "\x9b2J", "x\u202egpj", "\x7f"])
def test_a_name_cannot_steer_the_terminal(tmp_path: Path, capsys: Capture, name: str) -> None:
    path = tmp_path / f"{name}.csv"
    path.write_text("user,item\n" + ROWS)
    assert main(["data", "info", str(path)]) == 0
    out = capsys.readouterr().out
    assert not set(out) & set("\x1b\x07\x9b\u202e\x7f")
    assert f"\\u{ord(next(char for char in name if not char.isalnum())):04x}" in out
    assert main(["data", "info", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == name
    path.write_text(f"{name},b\n1,2\n")
    assert main(["data", "info", str(path)]) == 2
    assert not set(capsys.readouterr().err) & set("\x1b\x07\x9b\u202e\x7f")


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes on POSIX only")
def test_a_name_that_is_no_text_is_named(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / os.fsdecode(b"\xff.csv")
    path.write_text("user,item\n" + ROWS)
    assert main(["data", "info", str(path)]) == 2
    err = capsys.readouterr().err
    assert "\\udcff.csv" in err
    assert "should be UTF-8. Rename" in err


def test_colours_are_dropped(capsys: Capture) -> None:
    assert main(["\x1b[92mtrain\x1b[0m"]) == 2
    assert "command 'train'" in capsys.readouterr().err
