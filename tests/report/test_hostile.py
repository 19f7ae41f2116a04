"""Names and settings from result files are shown, and nothing else happens."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.report.hostile import poisoned

from fedrecgel.display.chart import BandLine, Chart, Curves, Panel
from fedrecgel.errors import RunFolderError
from fedrecgel.report.write import write_report

SHOP = {"dataset": "shop.csv", "method": "fedmf", "words": "w"}


class Markup(HTMLParser):
    """Counts tags with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[f"{tag} {' '.join(name for name, _ in attrs)}"] += 1


def report(results: Path, folder: Path, **names: str) -> str:
    """Write the report of results with these names, into a folder of its own."""
    root = poisoned(results, folder / "results", **names)
    page = folder / "out" / "deep" / "page.html"
    write_report(root, page, names["words"], figures=False)
    return page.read_text(encoding="utf-8")


def shape(folder: Path) -> Counter[tuple[str, int]]:
    """Rows of tables by how many cells they have, in LaTeX and in Markdown."""
    found: Counter[tuple[str, int]] = Counter()
    for path in (folder / "out" / "deep" / "tables").iterdir():
        for line in path.read_text(encoding="utf-8").split("\n"):
            if path.suffix == ".tex" and not line.startswith("%"):
                found[path.suffix, len(re.findall(r"(?<!\\)&", line))] += 1
            elif path.suffix == ".md" and line.startswith("|"):
                found[path.suffix, len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))] += 1
    return found


@pytest.fixture(scope="module")
def plain(results: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Markup, Counter[tuple[str, int]]]:
    """The same results with harmless names: what the markup should be."""
    folder = tmp_path_factory.mktemp("plain")
    page = report(results, folder, **SHOP)
    return results, Markup(page), shape(folder)


names = st.text(max_size=12) | st.text(alphabet="<>&\"'/.{}$\\|[]()`*_~^%#\n-![]a=:", max_size=12)


@settings(max_examples=8)
@given(dataset=names, method=names, words=names)
@example(dataset="<img src=x onerror=alert(1)>", method="</script><script>alert(2)</script>", words="{{data}}")
@example(dataset="a/../../../evil", method="<!--<script>", words='"><img src=x onerror=alert(3)>')
@example(dataset="..", method="[x](javascript:alert(4))", words="a\\|b | c\n\n# d")
@example(dataset="x" * 300, method=r"\input{/etc/passwd}", words="`a` ``b")
@example(dataset="\x00\r\n\x1b[2J", method="__proto__", words="\u2028\u202e")
def test_any_name_is_only_a_name(
    plain: tuple[Path, Markup, Counter[tuple[str, int]]],
    tmp_path_factory: pytest.TempPathFactory,
    dataset: str,
    method: str,
    words: str,
) -> None:
    results, markup, cells = plain
    folder = tmp_path_factory.mktemp("hostile")
    page = report(results, folder, dataset=dataset, method=method, words=words or "w")
    own = Markup(page).tags
    changing = {tag for tag in markup.tags | own if re.match(r"(td|th|tr|small|span|li)\b", tag)}  # rows may sort apart
    assert {tag: n for tag, n in own.items() if tag not in changing} == {
        tag: n for tag, n in markup.tags.items() if tag not in changing
    }
    assert {tag.split()[0] for tag in changing} <= {"td", "th", "tr", "small", "span", "li"}
    written = [path for path in folder.rglob("*") if path.is_file() and "results" not in path.relative_to(folder).parts]
    tables = folder / "out" / "deep" / "tables"
    assert {path.parent for path in written} == {tables, tables.parent, tables.parent / "pages"}
    assert len(list(tables.iterdir())) in (2 * 16, 2 * 17), "examples need a method of ours"
    assert shape(folder) == cells
    shutil.rmtree(folder)


def test_names_are_shown_as_they_are(results: Path, tmp_path: Path) -> None:
    page = report(results, tmp_path, dataset="a & <b>", method="{{body}}", words="{{script}} \\ 'x'")
    for name in ("a & <b>", "{{body}}", "{{script}} \\ 'x'"):
        assert name in unescape(page)
    assert "<title>fedrecgel: a &amp; &lt;b&gt;</title>" in page
    tables = {path.name for path in (tmp_path / "out" / "deep" / "tables").iterdir()}
    assert "main-a-b-.tex" in tables


@pytest.mark.parametrize("name", ["tables", "figures", "pages"])
def test_a_link_does_not_lead_out_of_the_folder(results: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFolderError, match=r"should be a folder\. Found a link"):
        write_report(results, tmp_path / "page.html", "a command")
    assert not (tmp_path / "page.html").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_figures_take_any_name(tmp_path: Path) -> None:
    drawing = pytest.importorskip("fedrecgel.report.drawing")
    line = BandLine("<$x_\x1b&", 0, [1, 2], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])
    charts = [Chart(name, "t", Curves("round", {"HR": Panel("HR", [line])}), "") for name in ("../a", "/A", "$\\frac$")]
    assert drawing.draw_all(charts, tmp_path / "figures") == 3
    assert {path.name for path in tmp_path.rglob("*.svg")} == {"a.svg", "A-2.svg", "frac-.svg"}
    assert {path.parent for path in tmp_path.rglob("*.*")} == {tmp_path / "figures"}
    assert "&lt;$x_\\u001b&amp;" in (tmp_path / "figures" / "a.svg").read_text(encoding="utf-8")
