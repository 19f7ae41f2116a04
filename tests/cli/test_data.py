from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from fedrecgel.cli.data import add_parser
from fedrecgel.data import download
from fedrecgel.data.load import NAMES
from fedrecgel.errors import ConfigError, DataError

INFO = ["name", "users", "items", "interactions", "sparsity", "min_interactions", "source", "licence", "sha256"]
AUDIT = [
    "split",
    "tested_users",
    "tested_items",
    "duplicate_pairs",
    "dropped_users",
    "heldout_in_train",
    "heldout_unseen",
    "tied_latest",
    "warnings",
]


def call(*words: str) -> int:
    parser = ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["data", *words])
    code: int = args.run(args)
    return code


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(NAMES)
    assert "1,000,209" in lines[-1]
    assert len({line.index(line.split(maxsplit=4)[4]) for line in lines}) == 1


def test_info_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("info", "demo", "--json") == 0
    printed = capsys.readouterr()
    info = json.loads(printed.out)
    assert list(info) == INFO
    assert (info["users"], info["items"], info["interactions"]) == (600, 800, 21_824)
    assert info["sparsity"] == pytest.approx(1 - 21_824 / 480_000)
    assert printed.err == ""


def test_info_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("info", "demo") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "interactions      21,824" in lines
    assert "sparsity          95.45%" in lines


def test_info_of_an_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user in "ab" for item in range(5)))
    assert call("info", str(path), "--json") == 0
    info = json.loads(capsys.readouterr().out)
    assert (info["name"], info["users"], info["source"], info["licence"]) == ("mine", 2, str(path), "unknown")


def test_audit_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("audit", "demo", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == AUDIT
    assert found["warnings"] == []


def test_audit_for_people(raw_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("audit", "demo") == 0
    assert capsys.readouterr().out.endswith("Nothing to warn about.\n")
    assert call("audit", "filmtrust", "--data-dir", str(raw_data)) == 0
    printed = capsys.readouterr().out
    assert "dropped_users     281\n" in printed
    assert "- There are no timestamps" in printed


def test_info_says_what_is_not_pinned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedrecgel.data.load._check_statistics", lambda *_: None)
    path = tmp_path / "qb-article" / "QB-article.csv"
    path.parent.mkdir()
    path.write_text("user_id,item_id\n" + "1,2\n1,3\n1,4\n1,5\n1,6\n")
    assert call("info", "qb-article", "--data-dir", str(tmp_path)) == 0
    assert "no published value to compare with" in capsys.readouterr().out
    assert call("info", "qb-article", "--data-dir", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["sha256"] == download.sha256_of(path)


def test_fetch(
    raw_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDRECGEL_DATA", str(raw_data))
    assert call("fetch", "filmtrust") == 0
    assert capsys.readouterr().out == f"{raw_data / 'filmtrust' / 'ratings.txt'}\n"


def test_fetch_without_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDRECGEL_DATA", raising=False)
    monkeypatch.setattr(download, "cache", lambda: tmp_path)
    assert call("fetch", "demo") == 0
    with pytest.raises(DataError, match="cannot be downloaded automatically"):
        call("fetch", "amazon-video")
    with pytest.raises(ConfigError, match="Did you mean 'filmtrust'"):
        call("fetch", "filmtrus")


def test_errors_reach_the_caller(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        call("info", "filmtrust", "--data-dir", str(tmp_path))
    with pytest.raises(ConfigError, match="Unknown data set"):
        call("audit", "lastfm")
