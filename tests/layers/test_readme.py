"""The README can be read in a minute, and its links work in the repository, on the site and on a package index."""

from __future__ import annotations

import re
import runpy
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


SITE = "https://example.org/fedrecgel/"


@pytest.fixture(scope="module")
def index_readme() -> Callable[[str | None], str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("setuptools.setup", lambda **_: None)
        found: Callable[[str | None], str] = runpy.run_path(str(ROOT / "setup.py"))["index_readme"]
        return found


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 90
    table = [line for line in README.splitlines() if line.startswith("|")]
    assert len(table) - 2 <= 8
    assert max(line.count("|") for line in table) - 1 <= 6


def test_an_index_gets_links_to_pages_of_the_site(index_readme: Callable[[str | None], str]) -> None:
    shown = index_readme(SITE)
    assert "\npip install fedrecgel && fedrecgel train\n" in shown
    targets = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert len(targets) == len(re.findall(r"\]\(([^)\s]+)\)", README)) > 10
    for target in targets:
        assert target.startswith(SITE), f"{target} is no address"
        place = target.removeprefix(SITE).partition("#")[0]
        page = {"contributing.html": "CONTRIBUTING.md", "changelog.html": "CHANGELOG.md"}.get(
            place, f"docs/{place.replace('.html', '.md')}"
        )
        assert (ROOT / page).exists(), f"the site has no page {place}"


def test_without_a_site_no_link_leads_nowhere(index_readme: Callable[[str | None], str]) -> None:
    shown = index_readme(None)
    assert not re.search(r"\]\((?!https?:)", shown)
    assert "the source distribution, under `docs/`" in shown
    assert "\nContributing · Changes · " in shown


def test_only_addresses_that_exist_are_named() -> None:
    """An address of the site stands in pyproject.toml and mkdocs.yml alike, or in neither."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    site = urls.get("Documentation", '""')
    assert re.search(rf"^site_url: {re.escape(site)}(?: |$)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)


def test_versions_agree() -> None:
    """Of the package, of what is cited, and the newest of the changes."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    released = re.search(rf"^## {re.escape(version)} - (\d{{4}}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released is not None
    assert f"\nversion: {version}\n" in cited
    assert f"\ndate-released: {released[1]}\n" in cited
