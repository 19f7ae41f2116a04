"""The documentation agrees with the code: links, paths, quoted lines, commands and generated tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs import generate
from docs.pictures import pictures
from tests.layers.pages import PAGES, ROOT, blocks, spans

from fedrecgel.cli.main import parser
from fedrecgel.methods import METHODS

METHODS_PAGE = ROOT / "docs" / "methods" / "index.md"
PAGE_NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

each_page = pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)


def commands(page: Path) -> Iterator[str]:
    """Calls of `fedrecgel` in blocks.

    Where a block has `$ ` prompts, only these lines are commands. Output without a prompt belongs in a `text` block.
    """
    for language, lines in blocks(page):
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        if language in ("text", "python", "toml", "json", "yaml") and not prompted:
            continue
        for line in prompted or lines:
            for part in re.split(r"&&|[|;>]", line):
                call = re.sub(r"^(\w+=\S+ )+", "", part.strip())
                if call.startswith("fedrecgel "):
                    yield call


def parses(call: str) -> bool:
    """Whether the command line takes this call; nothing is run."""
    words = [word for word in shlex.split(call, comments=True)[1:] if word != "--debug"]
    try:
        parser().parse_args(words)
    except SystemExit as stop:
        return stop.code == 0  # --help
    return True


@pytest.mark.parametrize("page", generate.PAGES, ids=lambda page: page.name)
def test_generated_parts_are_current(page: Path) -> None:
    wanted = generate.regenerate(page) == page.read_text(encoding="utf-8")
    assert wanted, f"{page} is not what the code says: run `python -m docs.generate`"


def test_pictures_are_current() -> None:
    """What a picture says of a method is what its class says."""
    wrong = [place.name for place, drawn in pictures().items() if drawn != place.read_text(encoding="utf-8")]
    assert not wrong, f"{wrong} are not what the code says: run `python -m docs.generate`"


def test_methods_are_compared_side_by_side() -> None:
    """Each table by hand has one line per federated method, in the order of the registry, with its own `fraction`."""
    text = METHODS_PAGE.read_text(encoding="utf-8").partition("## Side by side")[2].partition("\n## ")[0]
    cells = [re.split(r" *\| *", line) for line in text.splitlines() if line.startswith("| [")]
    federated = [name for name, kind in METHODS.items() if kind.kind == "federated"]
    assert [row[1] for row in cells] == 2 * [f"[{name}]({name}.md)" for name in federated]
    assert [float(row[4]) for row in cells[len(federated) :]] == [METHODS[name]().fraction for name in federated]


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    local = [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert not missing, f"{page.name} links to files that do not exist: {missing}"


@each_page
def test_paths_in_backticks_exist(page: Path) -> None:
    pattern = re.compile(r"(?:src|tests|configs|examples|docs)/[^\s:]*")
    found = [match[0] for span in spans(page) if (match := pattern.match(span))]
    missing = [path for path in found if "<" not in path and not any(ROOT.glob(path.rstrip("/")))]
    assert not missing, f"{page.name} names files that do not exist: {missing}"


@each_page
def test_paths_in_commands_exist(page: Path) -> None:
    lines = [line for block in blocks(page) if block.language in ("", "console") for line in block.lines]
    found = [word for line in lines for word in line.split() if re.match(r"(src|tests|configs|examples|docs)/", word)]
    missing = [path for path in found if not (ROOT / path.partition(":")[0]).exists()]
    assert not missing, f"{page.name} names files that do not exist: {missing}"


@each_page
def test_commands_parse(page: Path) -> None:
    wrong = [call for call in commands(page) if not parses(call)]
    assert not wrong, f"{page.name}: no valid commands (output belongs in a ```text block): {wrong}"


def test_every_method_has_a_page() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "methods").glob("*.md")} - {METHODS_PAGE.stem}
    assert pages == set(METHODS)


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} - {"index.md"}
    missing = {page for page in pages if f"]({page})" not in index}
    assert not missing, f"docs/index.md leaves out {sorted(missing)}"
