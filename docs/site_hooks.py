"""What MkDocs does besides its plugins: pages from outside of docs/, links to files of the repository, formulas.

Formulas become MathML, which browsers draw themselves: no script, no font, no request.
"""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages that stand beside README.md in the repository."""
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
FORMULA = re.compile(r'<(div|span) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside, and a page for each example."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    for example in sorted((ROOT / "examples").glob("*.*")):
        text = f"---\nsearch: {{exclude: true}}\n---\n{_example_text(example)}"
        page = File.generated(config, f"examples/{example.stem}.md", content=text)
        page.inclusion = page.inclusion.__class__.NOT_IN_NAV  # reached by links alone
        files.append(page)
    return files


def _example_text(example: Path) -> str:
    """A script as code; a notebook as its text and code, without what it showed."""
    text = example.read_text(encoding="utf-8")
    if example.suffix != ".ipynb":
        return f"# {example.name}\n\n```python\n{text}```\n"
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(words if kind == "markdown" else f"```python\n{words}\n```" for kind, words in cells)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository lead to their pages of the site, or become plain words."""
    place = PurePosixPath(page.file.src_uri).parent
    home = ROOT if page.file.src_uri in OUTSIDE.values() else ROOT / "docs" / place

    def moved(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = (home / target).resolve()
        name = _page_of(path)
        up = "../" * len(place.parts)
        return match[0] if name is None else f"]({up}{name}{anchor})"

    return LINK.sub(moved, markdown)


def _page_of(path: Path) -> str | None:
    """The page of the site that shows a file of the repository; None where the link can stay as it is."""
    if path.parent == ROOT / "examples" and path.suffix in (".py", ".ipynb"):
        return f"examples/{path.stem}.md"
    if path.name == "README.md" and path.parent == ROOT:
        return "index.md"
    if path.parent == ROOT and path.name in OUTSIDE:
        return OUTSIDE[path.name]
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    return None


def on_page_content(html: str, **_: Any) -> str:
    """Formulas as MathML."""

    def drawn(match: re.Match[str]) -> str:
        block = "block" if match[2] == "[" else "inline"
        return convert(unescape(match[3]).strip(), display=block)

    return FORMULA.sub(drawn, html)
