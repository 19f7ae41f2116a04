"""Errors that pages quote are what the commands above them print."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from tests.layers.pages import PAGES, blocks

from fedrecgel.cli.main import main

FILES = {
    "clicks.csv": "user,article,time\nu1,i1,3\n",
    "gap.csv": "user,item\nu1,i1\n,i2\n",
    "rag.csv": "user,item\nu1,i1\nu1,i2,i3\n",
    "tiny.csv": "user,item\n" + "".join(f"u{user:02},i{12 * user + k}\n" for user in range(5) for k in range(12)),
    "raw/qb-article/QB-article.csv": "user_id,item_id,click\n" + "".join(f"1,{item},1\n" for item in range(5)),
}
"""What the quoted commands read."""


def quoted() -> list[tuple[str, str]]:
    """Commands and the error below each; those about a trained run are left out."""
    lines = [pair for page in PAGES for block in blocks(page) for pair in pairwise(block.lines)]
    return [
        (command.removeprefix("$ fedrecgel "), error)
        for command, error in lines
        if command.startswith("$ fedrecgel ") and error.startswith("fedrecgel: ") and "--out runs/" not in command
    ]


def test_pages_quote_errors() -> None:
    assert len(quoted()) > 5


@pytest.mark.parametrize(("command", "error"), quoted())
def test_a_quoted_error_is_printed(
    command: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "latin.csv").write_bytes("user,item\nJosé,i1\n".encode("latin-1"))
    assert main(shlex.split(command)) == 2
    assert capsys.readouterr().err.strip() == error
