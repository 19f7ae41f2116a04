"""The report of a small folder: complete, self-contained, and no number of its own."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from fedrecgel.cli.main import main
from fedrecgel.report.collect import collect
from fedrecgel.report.write import write_report

Capture = pytest.CaptureFixture[str]
SECTIONS = [
    "main-table",
    "quirks",
    "privacy",
    "people",
    "lists",
    "examples",
    "curves",
    "uploads",
    "sensitivity",
    "ablation",
    "landscape",
    "generalisation",
    "data",
    "protocol",
]
SECTIONS += ["leaves-device", "environment", "runs"]


@pytest.fixture(scope="module")
def page(results: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report(results, out, "fedrecgel report results", figures=False)
    return out.read_text(encoding="utf-8")


def test_every_section_is_there_once(page: str) -> None:
    assert re.findall(r'<section id="([\w-]+)"', page) == SECTIONS
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "{{" not in page


def test_it_needs_no_network(page: str) -> None:
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', markup)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", page)
    script = page[page.rindex("<script>") :]
    assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(|WebSocket|eval\(|new Function", script)


def test_every_figure_has_numbers_and_the_command_that_makes_it(page: str) -> None:
    keys = re.findall(r'<figure data-figure="\w+" data-key="([^"]+)"', page)
    (data,) = re.findall(r'<script type="application/json" id="figure-data">(.*?)</script>', page, flags=re.DOTALL)
    assert set(json.loads(data)["figures"]) == {unescape(key) for key in keys}
    cards = re.findall(r"<figure.*?</figure>(.*?)</div>", page, flags=re.DOTALL)
    assert len(cards) == len(keys) > 5
    assert all("<code>fedrecgel " in card for card in cards)


def test_popularity_stands_in_every_table_of_metrics(page: str) -> None:
    tables = re.findall(r'id="table-((?:main|ablation|sensitivity)[^"]*)".*?</table>', page, flags=re.DOTALL)
    assert len(tables) == 4
    for name in tables:
        body = re.search(rf'id="table-{re.escape(name)}".*?</table>', page, flags=re.DOTALL)
        assert body is not None
        assert '<tr class="reference">' in body[0]


def test_numbers_are_those_of_the_run_folders(results: Path, page: str) -> None:
    found = collect(results)
    for record in found.finished:
        summary = json.loads((results / record.folder / "summary.json").read_text())
        hr, ndcg = summary["metrics"]["HR@10"], summary["metrics"]["NDCG@10"]
        assert f"{100 * hr:.2f} / {100 * ndcg:.2f}" in page
        assert record.folder in page
    assert found.main is not None
    for row in found.main.rows:
        mine = [json.loads((results / folder / "summary.json").read_text()) for folder in row.folders]
        mean = sum(summary["metrics"]["HR@10"] for summary in mine) / len(mine)
        assert row.cells["candidates"]["HR@10"].mean == pytest.approx(mean, abs=1e-12)
        full = sum(summary["metrics_full"]["NDCG@10"] for summary in mine) / len(mine)
        assert row.cells["catalogue"]["NDCG@10"].mean == pytest.approx(full, abs=1e-12)


def test_the_report_opens_no_model(results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("*.safetensors", "checkpoint")
    shutil.copytree(results, copy, ignore=ignored)
    assert main(["report", str(copy), "-o", str(tmp_path / "page.html"), "--no-figures"]) == 0


def test_tables_and_figures_for_papers(results: Path, tmp_path: Path, capsys: Capture) -> None:
    """And the same results give the same files."""
    pytest.importorskip("matplotlib")
    assert main(["report", str(results), "-o", str(tmp_path / "page.html")]) == 0
    tables = {path.suffix for path in (tmp_path / "tables").iterdir()}
    assert tables == {".md", ".tex"}
    figures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert {path.rpartition(".")[2] for path in figures} == {"png", "svg", "pdf"}
    assert f"{len(figures) // 3} figures" in capsys.readouterr().out
    for path in (tmp_path / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    pages = {path.stem: path.read_text() for path in (tmp_path / "pages").iterdir()}
    assert pages["results"].startswith("# Results\n\n## [shop.csv](results-shop.csv.md)\n\n- Of the items ")
    assert "commit" not in pages["results"].partition("[^made]:")[0]
    assert (tmp_path / "figures" / "overview-shop.csv.svg").exists()
    assert pages["results-shop.csv"].startswith("# shop.csv\n\n- Of the items ")
    assert "fedrecgel experiment main-table" in pages["results-shop.csv"]
    for page, words in {
        "results-shop.csv": "Against popularity, in points of HR@10, ",
        "ablation": "shop.csv: Sharpness-aware training ",
        "sensitivity": "The radii were run with too few seeds to test NDCG@10",
        "quirks": "# What quirks are worth",
        "generalisation": "Lemma 2",
        "conditions": "## Protocol",
    }.items():
        assert words in pages[page], page
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert main(["report", str(results), "-o", str(tmp_path / "page.html")]) == 0
    assert [path.name for path, content in before.items() if path.read_bytes() != content] == []


def test_a_single_run_folder_is_enough(results: Path, tmp_path: Path) -> None:
    table = collect(results).main  # other experiments' runs may have been measured once, at their end
    assert table is not None
    run = next(results / row.folders[0] for row in table.rows if row.label == "fedncf")
    assert main(["report", str(run), "-o", str(tmp_path / "page.html"), "--no-figures"]) == 0
    text = (tmp_path / "page.html").read_text()
    assert '<section id="curves"' in text
    assert '<section id="main-table"' not in text
    assert 'id="table-levels-' in text
    assert "Of the items that users chose and no method saw, popularity alone puts " in text
    lists = text.partition('id="table-lists-')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="row"><span>([\w ]+)<', lists) == ["fedncf", "popularity", "clicks"]
    assert "places for popular items" in lists


def test_a_damaged_config_is_named(results: Path, tmp_path: Path, capsys: Capture) -> None:
    run = next((results / "runs").iterdir())
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text("[method")
    assert main(["report", str(tmp_path)]) == 2
    assert "config.toml' cannot be read" in capsys.readouterr().err


def test_the_page_is_a_file(results: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["report", str(results), "-o", str(tmp_path)]) == 2
    assert "-o should be a file" in capsys.readouterr().err


def test_a_folder_without_runs_is_refused(tmp_path: Path, capsys: Capture) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "should hold finished runs" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "absent")]) == 2
    assert "There is none" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
