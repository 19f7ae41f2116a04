"""`fedrecgel compare` and `fedrecgel.compare` on real runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.results import write_csv

import fedrecgel as fr
from fedrecgel.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two methods, two seeds each, on one split."""
    folder = tmp_path_factory.mktemp("compare")
    csv, found = write_csv(folder / "shop.csv"), []
    for method in ("fedmf", "popularity"):
        for seed in ("0", "1")[: 1 if method == "popularity" else 2]:
            found.append(str(folder / f"{method}-{seed}"))
            words = ["train", "--dataset", str(csv), "--method", method, "--seed", seed, "--rounds", "2", "--quiet"]
            assert main([*words, "--out", found[-1]]) == 0
    return found


def test_table_and_sentences(runs: list[str], capsys: Capture) -> None:
    assert main(["compare", *runs]) == 0
    said = capsys.readouterr().out
    assert "fedmf minus popularity" in said
    assert "2 seeds, not tested" in said.splitlines()[-1]


def test_json_and_python_say_the_same(runs: list[str], capsys: Capture) -> None:
    assert main(["compare", *runs, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ours = fr.compare(*map(fr.open, runs))
    assert found["pairs"] == json.loads(json.dumps(ours.to_dict()["pairs"]))
    levels = {row["label"]: row["cells"]["candidates"]["HR@10"]["mean"] for row in found["rows"]}
    (pair,) = (p for p in found["pairs"] if (p["against"], p["metric"]) == ("candidates", "HR@10"))
    assert pair["comparison"]["difference"] == pytest.approx(levels["fedmf"] - levels["popularity"])
    assert pair["verdict"] == "too few seeds"
    assert "minus popularity" in repr(ours)
    assert "<table" in ours._repr_html_()


@pytest.mark.parametrize(
    ("name", "start"), [("a.html", b"<!doctype"), ("a.png", b"\x89PNG"), ("a.tex", b"%"), ("a.json", b"{")]
)
def test_what_it_writes(runs: list[str], tmp_path: Path, name: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    assert main(["compare", *runs, "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_bytes().startswith(start)


def test_wrong_input(runs: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main(["compare", *runs, "-o", str(tmp_path / "a.doc")]) == 2
    assert "ends in .html" in capsys.readouterr().err
    assert main(["compare", runs[0]]) == 2
    assert "two configurations" in capsys.readouterr().err
    assert main(["compare", runs[0], str(tmp_path)]) == 2
    assert "should be a run folder" in capsys.readouterr().err
