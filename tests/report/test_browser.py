"""The page in a real browser: Debian's Chromium, driven from here; skipped where it is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.report.hostile import poisoned

from fedrecgel.report.write import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = os.environ.get("FEDRECGEL_SCREENSHOTS")
"""A folder to keep screenshots in."""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        # A container has no user namespaces for the sandbox; the page is our own file.
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def page_file(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("browser") / "report.html"
    write_report(results, out, "fedrecgel report results", figures=False)
    return out


class Opened:
    """A page, and everything it complained about or asked the network for."""

    def __init__(self, browser: Browser, file: Path, width: int = 1280, scheme: Any = "light") -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.trouble: list[str] = []
        self.page.on("console", lambda m: self.trouble.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else self.trouble.append(r.url))
        self.page.on("dialog", self._dismiss)
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("figure[data-drawn]")

    def _dismiss(self, dialog: Dialog) -> None:
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")], ids=["light", "dark", "phone"]
)
def test_it_loads_without_a_complaint_and_fits(browser: Browser, page_file: Path, width: int, scheme: str) -> None:
    opened = Opened(browser, page_file, width, scheme)
    page = opened.page
    assert opened.trouble == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == 390:
        assert page.evaluate("document.documentElement.scrollHeight") < 12_000
        assert page.locator("details.fold[open]").count() == 0
        assert page.locator("section#curves figure, section#uploads figure").first.is_visible()
        page.evaluate("for (const fold of document.querySelectorAll('details.fold')) fold.open = true")
    figures = page.locator("figure[data-figure]")
    assert figures.count() == page.locator("figure[data-drawn]").count() > 5
    for number in range(figures.count()):
        drawn = figures.nth(number).locator("svg, canvas")
        assert drawn.count() > 0
        for part in range(drawn.count()):
            box = drawn.nth(part).bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) > 40
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(shade) < 150) == (scheme == "dark")
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{scheme}-{width}.png"), full_page=True)
    page.close()


def test_tables_sort_both_ways(browser: Browser, page_file: Path) -> None:
    page = Opened(browser, page_file).page
    table = page.locator("table[id^='table-main']")
    head = table.locator("thead th").nth(3)

    def column() -> list[float]:
        return [
            float(value)
            for value in table.locator("tbody tr td:nth-child(4)").evaluate_all(
                "cells => cells.map(cell => cell.dataset.value)"
            )
        ]

    before = column()
    head.locator("button").click()
    assert column() == sorted(before, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert column() == sorted(before)
    assert head.get_attribute("aria-sort") == "ascending"
    page.close()


def test_hovering_a_curve_shows_its_values(browser: Browser, page_file: Path) -> None:
    page = Opened(browser, page_file).page
    plot = page.locator("figure[data-figure='curves'] svg").first
    plot.scroll_into_view_if_needed()
    page.wait_for_timeout(500)  # the page scrolls smoothly, and scrolling hides the tip
    plot.hover(position={"x": 300, "y": 120})
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert "popularity" in tip.inner_text()
    assert "fedrecgel" in tip.inner_text()
    page.close()


def test_a_legend_hides_and_shows_a_line(browser: Browser, page_file: Path) -> None:
    page = Opened(browser, page_file).page
    figure = page.locator("figure[data-figure='curves']").first
    lines = figure.locator("polyline.series")
    before = lines.count()
    figure.locator(".legend button").first.click()
    assert lines.count() == before - 1
    figure.locator(".legend button").first.click()
    assert lines.count() == before
    page.close()


def test_switches_change_the_figure(browser: Browser, page_file: Path) -> None:
    page = Opened(browser, page_file).page
    figure = page.locator("figure[data-figure='curves']").first
    assert "HR@10" in (figure.locator("svg").text_content() or "")
    figure.locator(".switch button", has_text="loss").click()
    assert "training loss" in (figure.locator("svg").text_content() or "")
    page.close()


def test_the_surface_turns_by_mouse_and_keys(browser: Browser, page_file: Path) -> None:
    page = Opened(browser, page_file).page
    canvas = page.locator(".plot.solid canvas").first
    canvas.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    looks = [canvas.screenshot()]
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 140, steps=4)
    page.mouse.up()
    looks.append(canvas.screenshot())
    canvas.press("ArrowLeft")
    looks.append(canvas.screenshot())
    page.locator("figure[data-figure='surfaces'] .switch button").first.click()
    looks.append(canvas.screenshot())
    assert len(set(looks)) == 4
    page.close()


def test_the_theme_can_be_chosen(browser: Browser, page_file: Path) -> None:
    page = Opened(browser, page_file).page
    button = page.locator("#theme")
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.inner_text(), page.evaluate("document.documentElement.dataset.theme ?? null")))
    assert seen == [("Light", "light"), ("Dark", "dark"), ("Auto", None)]
    page.close()


HOSTILE = [
    {"dataset": "<img src=x onerror=alert(1)>", "method": "</script><script>alert(2)</script>", "words": "{{data}}"},
    {"dataset": "<!--<script>", "method": "__proto__", "words": '"><img src=https://x.invalid onerror=alert(3)>'},
    {"dataset": "{{script}}{{data}}", "method": "' onmouseover=alert(4) x='", "words": "</title><svg/onload=alert(5)>"},
]


@pytest.mark.parametrize("names", HOSTILE, ids=["tags", "comments", "places"])
def test_hostile_names_are_shown_and_do_nothing(
    browser: Browser, results: Path, tmp_path: Path, names: dict[str, str]
) -> None:
    root = poisoned(results, tmp_path / "results", **names)
    write_report(root, tmp_path / "page.html", names["words"], figures=False)
    opened = Opened(browser, tmp_path / "page.html")
    page = opened.page
    page.locator("figure[data-figure='curves'] .legend button").first.hover()
    assert page.locator("figure[data-figure]").count() == page.locator("figure[data-drawn]").count() == 12
    assert page.title() == f"fedrecgel: {names['dataset']}"
    for name in names.values():
        assert page.get_by_text(name).count() > 0
    assert opened.trouble == []
    page.close()


def test_the_policy_stops_what_escaping_might_miss(browser: Browser, page_file: Path, tmp_path: Path) -> None:
    """A script, a style, a picture and a request that are not the page's own."""
    inserted = "<script>alert(1)</script><img src=x onerror=alert(2)><p id=p style='color:red'>"
    broken = tmp_path / "broken.html"
    broken.write_text(page_file.read_text(encoding="utf-8").replace("<footer>", f"{inserted}<footer>"))
    opened = Opened(browser, broken)
    assert opened.page.evaluate("fetch('https://x.invalid').catch(() => 'refused')") == "refused"
    assert opened.page.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
    assert opened.trouble
    assert all("Content Security Policy" in line for line in opened.trouble)
    opened.page.close()
