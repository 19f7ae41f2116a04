"""The page in a real browser: what is picked, ranked, kept, forgotten and asked for; skipped without Chromium."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from tests.export.device_runs import N_ITEMS, small_run

from fedrecgel.data.federation import LEARNT_FROM
from fedrecgel.export.bundle import write_bundle, write_web
from fedrecgel.export.runtime import Device
from fedrecgel.export.server import PageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Dialog, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = os.environ.get("FEDRECGEL_SCREENSHOTS")
"""A folder to keep screenshots in."""
TITLES = [f"Title {number:03} of {'day' if number % 2 else 'night'}" for number in range(N_ITEMS)]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("popularity", {}),
    ("itemknn", {"decay": 0.5}),
    ("ease", {"decay": 0.5}),
    ("ials", {"decay": 0.5}),
    ("spectra", {"pairs": True}),
    ("fedmf", {}),
    ("fedncf", {"model": "mf", "user_optimiser": "sgd", "reduction": "mean"}),
    ("fedrecgel", {"chunk": 7, "rho_ur": 0.1}),
]

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        # A container has no user namespaces for the sandbox; the page is our own folder.
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Visit:
    """A visitor: a page in a browser profile of its own, and all it complained about or asked for."""

    def __init__(self, browser: Browser, folder: Path, width: int = 1280, scheme: Any = "light") -> None:
        self.server = PageServer(folder, 0)
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.page: Page = self.context.new_page()
        self.trouble: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.trouble.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.context.on("request", lambda request: self.requests.append(request.url))

    def _dismiss(self, dialog: Dialog) -> None:
        self.trouble.append(dialog.message)
        dialog.dismiss()

    def open(self) -> Page:
        self.page.goto(self.server.address)
        self.page.wait_for_selector("html[data-ready]")
        return self.page

    def pick(self, text: str) -> None:
        """By keyboard: the first match of a search."""
        n_picks = self.page.locator("#picks li").count()
        self.page.locator("#search").focus()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")
        self.page.locator("#picks li").nth(n_picks).wait_for()
        self.settle()

    def settle(self) -> None:
        """Until what is shown belongs to what is picked."""
        self.page.wait_for_selector("#list[aria-busy=false]", state="attached")

    def picks(self) -> list[str]:
        return self.read("#picks li", "item")

    def read(self, where: str, what: str) -> list[str]:
        found: list[str] = self.page.locator(where).evaluate_all(f"all => all.map(one => one.dataset.{what})")
        return found

    def close(self) -> None:
        self.context.close()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "web"
    write_web(small_run("spectra"), folder, TITLES)
    return folder


@pytest.mark.parametrize(("name", "options"), CASES, ids=[name for name, _ in CASES])
def test_ranks_are_those_of_python_and_nothing_is_asked_for_afterwards(
    browser: Browser, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    run = small_run(name, **options)
    files = write_web(run, tmp_path / "web", TITLES).files
    write_bundle(run, tmp_path / "bundle", TITLES)
    visit = Visit(browser, tmp_path / "web")
    visit.open()
    loaded = sorted(url.removeprefix(visit.server.address) for url in visit.requests)
    assert loaded == sorted({"" if file == "index.html" else file for file in files})
    for text in ("title 017", "TITLE 004", "120"):
        visit.pick(text)
        me = Device(tmp_path / "bundle")
        me.add(visit.picks())
        expected = me.recommend(12)
        assert visit.read("#list > li", "item") == [str(pick.item) for pick in expected]
        scores = [float(score) for score in visit.read("#list > li", "score")]
        assert scores == pytest.approx([pick.score for pick in expected], rel=1e-5, abs=1e-5)
        reasons = [
            line.all_inner_texts() for line in (visit.page.locator(f"#list > li:nth-child({n}) .why b") for n in (1, 2))
        ]
        number = {item: place for place, item in enumerate(run.item_ids)}
        assert reasons == [[TITLES[number[item]] for item in pick.because[:2]] for pick in expected[:2]]
    assert visit.picks() == ["117", "104", "220"]
    assert len(visit.requests) == len(files)
    assert visit.page.inner_text("#requests") == "0"
    assert visit.trouble == []
    assert visit.page.evaluate("fetch('manifest.json').then(() => 'sent', () => 'refused')") == "refused"
    visit.close()


def test_a_long_history_is_learnt_from_its_latest_items(browser: Browser, tmp_path: Path) -> None:
    run = small_run("fedmf")
    write_web(run, tmp_path / "web", TITLES)
    write_bundle(run, tmp_path / "bundle", TITLES)
    visit, me = Visit(browser, tmp_path / "web"), Device(tmp_path / "bundle")
    page = visit.open()
    visit.pick("017")
    many = [*run.item_ids[20:], *run.item_ids[:7]]
    assert len(many) > LEARNT_FROM
    page.evaluate("many => localStorage.setItem(localStorage.key(0), JSON.stringify(many))", many)
    visit.open()
    visit.settle()
    assert visit.picks() == [str(item) for item in many]
    me.add(many)
    assert visit.read("#list > li", "item") == [str(pick.item) for pick in me.recommend(12)]
    visit.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_has_the_colours_of_the_system(browser: Browser, web: Path, width: int, scheme: str) -> None:
    visit = Visit(browser, web, width, scheme)
    page = visit.open()
    visit.pick("017")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(shade) < 150) == (scheme == "dark")
    small = page.locator("button:visible").evaluate_all("all => all.filter(one => one.offsetHeight < 24).length")
    assert small == 0
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"device-{scheme}-{width}.png"), full_page=True)
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    visit.close()


def test_reload_keeps_and_clear_forgets(browser: Browser, web: Path) -> None:
    visit = Visit(browser, web)
    page = visit.open()
    assert page.is_visible("#empty")
    visit.pick("017")
    visit.pick("004")
    before = visit.read("#list > li", "item")
    visit.open()
    visit.settle()
    assert visit.picks() == ["117", "104"]
    assert visit.read("#list > li", "item") == before
    page.click("#clear")
    assert visit.picks() == visit.read("#list > li", "item") == []
    assert page.evaluate("localStorage.length") == 0
    visit.open()
    assert visit.picks() == []
    assert page.is_visible("#starters")
    visit.close()


def test_everything_can_be_done_by_keyboard(browser: Browser, web: Path) -> None:
    visit = Visit(browser, web)
    page = visit.open()
    for _ in range(3):  # past the link to the list and the theme
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("night 01")
    assert page.get_attribute("#search", "aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    chosen = page.get_attribute("#search", "aria-activedescendant")
    wanted = page.inner_text(f"#{chosen}")
    assert page.get_attribute(f"#{chosen}", "aria-selected") == "true"
    page.keyboard.press("Enter")
    visit.settle()
    assert wanted.startswith(page.inner_text("#picks li span"))
    assert page.inner_text("#status").startswith("12 recommendations. First: Title ")
    page.keyboard.type("day")
    page.keyboard.press("Escape")
    assert page.is_hidden("#found")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("Remove Title ")
    page.keyboard.press("Enter")
    assert visit.picks() == []
    visit.close()


def test_a_card_can_be_liked_and_more_be_shown(browser: Browser, web: Path) -> None:
    visit = Visit(browser, web)
    page = visit.open()
    page.click("#starters button >> nth=0")
    visit.settle()
    first = visit.read("#list > li", "item")[0]
    page.click("#list .add >> nth=0")
    visit.settle()
    assert visit.picks()[1] == first
    assert first not in visit.read("#list > li", "item")
    page.click("#more")
    visit.settle()
    assert len(visit.read("#list > li", "item")) == 24
    page.click("#list summary >> nth=0")
    shares = [int(text.rstrip("%")) for text in page.locator("#list > li:first-child .shares em").all_inner_texts()]
    assert 98 <= sum(shares) <= 102
    visit.close()


def test_hostile_titles_are_text(browser: Browser, tmp_path: Path) -> None:
    titles = [f"<img src=x onerror=alert({n})><script>alert(1)</script> {n:03}" for n in range(N_ITEMS)]
    write_web(small_run("spectra"), tmp_path / "web", titles)
    visit = Visit(browser, tmp_path / "web")
    page = visit.open()
    visit.pick("017")
    assert page.inner_text("#picks li span") == titles[17]
    assert page.locator("main img, main script").count() == 0
    assert visit.trouble == []
    visit.close()


def test_without_titles_ids_are_shown(browser: Browser, tmp_path: Path) -> None:
    write_web(small_run("spectra"), tmp_path / "web", precision="int8")
    visit = Visit(browser, tmp_path / "web")
    page = visit.open()
    visit.pick("117")
    assert page.inner_text("#picks li span") == "Item 117"
    assert page.inner_text("#list h3 >> nth=0").startswith("Item ")
    visit.close()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vectors.bin", b"short", "The file vectors.bin is damaged. Copy the folder again."),
        ("manifest.json", json.dumps({"format": "fedrecgel-bundle", "version": 2}).encode(), "Found version 2."),
        ("manifest.json", b'{"format": "zip"}', "manifest.json should describe a fedrecgel-bundle."),
    ],
)
def test_damaged_files_are_named(
    browser: Browser, web: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    shutil.copytree(web, tmp_path / "web")
    (tmp_path / "web" / name).write_bytes(content)
    visit = Visit(browser, tmp_path / "web")
    visit.page.goto(visit.server.address)
    visit.page.wait_for_selector("#trouble:visible")
    assert message in visit.page.inner_text("#trouble")
    visit.close()
