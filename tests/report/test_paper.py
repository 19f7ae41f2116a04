"""One table or one figure for a paper, pages for a site, and who gains."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fedrecgel.cli.main import main
from fedrecgel.display.chart import Chart, Difference, Differences
from fedrecgel.report.people import thirds

Capture = pytest.CaptureFixture[str]
LATEX = shutil.which("pdflatex")


def test_a_table_to_paste(results: Path, capsys: Capture) -> None:
    words = ["report", str(results), "--latex", "--methods", "popularity,fedmf", "--columns", "NDCG@10,HR@5"]
    assert main([*words, "--caption", "50% & more"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert r"\caption{50\% \& more}" in lines
    assert r"Method & NDCG@10 & HR@5 \\" in lines
    assert [line.partition(" &")[0] for line in lines if line.startswith(("popularity", "fedmf"))] == [
        "popularity",
        "fedmf",
    ]
    assert text.count(r"\textbf{") >= 2
    assert r"\toprule" in lines
    assert lines.count(r"\begin{tabular}{lrr}") == 1


def test_latex_has_no_character_that_needs_a_package(results: Path, tmp_path: Path) -> None:
    """Comments aside: what reports write that is not ASCII has a command of LaTeX."""
    assert main(["report", str(results), "-o", str(tmp_path / "page.html"), "--no-figures"]) == 0
    assert main(["report", str(results), "--latex", "-o", str(tmp_path / "tables" / "paper.tex")]) == 0
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "tables").glob("*.tex")]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("%")]
    assert len(texts) > 15
    assert {character for line in lines for character in line if not character.isascii()} == set()


@pytest.mark.skipif(LATEX is None, reason="needs LaTeX: apt-get install texlive-latex-extra")
def test_latex_takes_every_table(results: Path, tmp_path: Path) -> None:
    assert main(["report", str(results), "-o", str(tmp_path / "page.html"), "--no-figures"]) == 0
    assert main(["report", str(results), "--latex", "-o", str(tmp_path / "tables" / "paper.tex")]) == 0
    inputs = "".join(rf"\input{{tables/{path.stem}}}\par" for path in sorted((tmp_path / "tables").glob("*.tex")))
    packages = r"\usepackage{booktabs}\usepackage[paperwidth=300cm,paperheight=200cm]{geometry}"
    document = rf"\documentclass{{article}}{packages}\begin{{document}}{inputs}\end{{document}}"
    (tmp_path / "all.tex").write_text(document)
    command = [str(LATEX), "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, errors="replace")
    assert made.returncode == 0, made.stdout[-2000:]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--latex", "--columns", "HR@11"], "Did you mean 'HR@10'"),
        (["--latex", "--methods", "fedmff"], "Did you mean 'fedmf'"),
        (["--figure", "overview-shop"], "Did you mean 'overview-shop.csv'"),
        (["--figure", "overview-shop.csv", "-o", "a.doc"], "ends in .png"),
    ],
)
def test_wrong_choices_get_the_nearest(results: Path, capsys: Capture, words: list[str], reason: str) -> None:
    assert main(["report", str(results), *words]) == 2
    assert reason in capsys.readouterr().err


def test_one_figure(results: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "one.pdf"
    assert main(["report", str(results), "--figure", "overview-shop.csv", "-o", str(target)]) == 0
    assert target.read_bytes().startswith(b"%PDF")
    assert list(tmp_path.iterdir()) == [target]


def test_one_figure_is_named_as_all_are(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = pytest.importorskip("fedrecgel.report.drawing")
    lines = [{"HR@10": [Difference(name, 1.0, 0.5, 1.5, 1, [])]} for name in ("first", "second")]
    names = ("a/b", "a-b")  # one file name
    charts = [Chart(name, "", Differences("", "", "", "", of), "") for name, of in zip(names, lines, strict=True)]
    monkeypatch.setattr("fedrecgel.report.write.all_charts", lambda *_: iter(charts))
    drawing.draw_all(charts, tmp_path / "all")
    for name, line in {"a-b": "first", "a-b-2": "second"}.items():
        target = tmp_path / f"{name}.svg"
        assert main(["report", str(results), "--figure", name, "-o", str(target)]) == 0
        for drawn in (target, tmp_path / "all" / target.name):
            assert f">{line}<" in drawn.read_text(encoding="utf-8")


def test_one_wide_interval_does_not_dwarf_the_others() -> None:
    lines = [Difference(str(n), n, n - 1.0, n + 1.0, 0, []) for n in range(4)]
    wide = Difference("wide", 1.0, -100.0, 102.0, 0, [])
    low, high = Differences("", "", "", "", {"HR@10": [*lines, wide]}).ranges["HR@10"]
    assert -3 < low < -1
    assert 4 < high < 6


def test_thirds_of_users() -> None:
    found = thirds([1, 1, 2, 3, 4, 9], ("short", "middle", "long"))
    assert found.names == ("short, up to 1", "middle, up to 3", "long, more")
    assert [part.sum() for part in found.parts] == [2, 2, 2]
