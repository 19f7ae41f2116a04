"""What docstrings, comments and pages name in backticks exists."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.layers.pages import PACKAGE, PAGES, ROOT, defined_names
from tests.layers.pages import spans as page_spans

SOURCES = sorted(PACKAGE.rglob("*.py"))
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
REFERENCE = re.compile(r"(\S+\.py): ([\w.]+)")
IDENTIFIER = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(\([^()]*\))?")
SHORTEST = 3
"""Shorter ones are letters of formulas."""
OUTSIDE = {"nn": "torch.nn"}
"""Short names of other packages' modules; any other package is named in full."""


def docstrings(tree: ast.AST) -> list[ast.Constant]:
    """The docstrings in a piece of source."""
    alone = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return [value for value in alone if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def texts(path: Path) -> Iterator[str]:
    """Docstrings and comments of a file."""
    source = path.read_text(encoding="utf-8")
    yield from (str(docstring.value) for docstring in docstrings(ast.parse(source)))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def spoken_of(path: Path) -> list[str]:
    """What stands in backticks in a file."""
    return [span for text in texts(path) for span in SPAN.findall(text)]


def vocabulary(paths: list[Path]) -> set[str]:
    """Every name and every string that code uses, docstrings apart."""
    known: set[str] = set()
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        apart = set(map(id, docstrings(tree)))
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                    known.add(name)
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    known.add(name)
                case ast.alias(name=name, asname=asname):
                    known |= {*name.split("."), asname or name}
                case ast.Constant(value=str(text)) if id(node) not in apart:
                    known.add(text)
    return known


MODULES = {path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__"): path for path in SOURCES}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
KNOWN = vocabulary(SOURCES) | set(EXTRAS)
SECTIONS = {
    "section",
    *re.findall(r"^### \[(\w+)\]", (ROOT / "docs" / "config.md").read_text(encoding="utf-8"), re.MULTILINE),
}
"""Of settings: `run.rounds` is a setting, not a function of engine/run.py; `section.key` stands for any of them."""


def names_in(path: Path) -> set[str]:
    """What a module defines; of a package, what its modules define."""
    paths = path.parent.glob("*.py") if path.name == "__init__.py" else [path]
    return set().union(*map(defined_names, paths))


def modules_of(parts: list[str]) -> tuple[list[Path], list[str]]:
    """The modules that the first of these parts may name, in full or from one of their folders on; the other parts."""
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        found = [path for full, path in MODULES.items() if full == name or full.endswith(f"/{name}")]
        if found:
            return found, parts[length:]
    return [], parts


def is_outside(name: str) -> bool:
    """Whether another package has this name."""
    first, *rest = name.split(".")
    try:
        value: object = import_module(OUTSIDE.get(first, first))
        for part in rest:
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return False
    return True


def exists(name: str) -> bool:
    """Whether a name, dotted or not, is one of the package, of its settings or of another package."""
    if len(name) < SHORTEST or name in KNOWN:
        return True
    parts = name.removeprefix("fedrecgel.").split(".")
    if len(parts) == 1:
        return parts[0] in KNOWN
    modules, rest = modules_of(parts)
    if modules and parts[0] not in SECTIONS | OUTSIDE.keys():
        return any(set(rest) <= names_in(path) for path in modules)
    return is_outside(name) or (parts[0] not in OUTSIDE and set(parts) <= KNOWN)


def stale(spans: list[str], path: Path, also: set[str]) -> list[str]:
    """The spans that name something of the code which is not there."""
    found = []
    for span in spans:
        if match := REFERENCE.fullmatch(span):
            file = next((base / match[1] for base in (ROOT, PACKAGE, path.parent) if (base / match[1]).exists()), None)
            if file is None or not set(match[2].split(".")) <= defined_names(file):
                found.append(span)
        elif (match := IDENTIFIER.fullmatch(span)) and match[1] not in also and not exists(match[1]):
            found.append(span)
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_docstrings_and_comments_name_what_exists(path: Path) -> None:
    wrong = stale(spoken_of(path), path, set())
    assert not wrong, f"{path.name} names what does not exist: {wrong}"


def test_docstrings_and_comments_of_tests_name_what_exists() -> None:
    paths = sorted((ROOT / "tests").rglob("*.py"))
    words = vocabulary(paths)
    wrong = {path.name: found for path in paths if (found := stale(spoken_of(path), path, words))}
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_name_what_exists(page: Path) -> None:
    """Of the code, of the scripts in deploy/, of TOML, or a file at the root."""
    scripts = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "deploy").glob("*.sh"))
    also = {"true", "false", *re.findall(r"[\w.]+", scripts), *(path.name for path in ROOT.iterdir())}
    wrong = stale(page_spans(page), page, also)
    assert not wrong, f"{page.name} names what does not exist: {wrong}"


@pytest.mark.parametrize(
    "name", ["open_answer", "nn.graph", "gate.open_answer", "neumf.kmeans", "models.neumf.NeuMG", "torch.no_such"]
)
def test_stale_names_are_found(name: str) -> None:
    assert stale([name], PACKAGE / "engine" / "gate.py", set()) == [name]


@pytest.mark.parametrize("name", ["sift", "engine.run.run", "NeuMF", "nn.Module", "run.rounds", "check_method(method)"])
def test_current_names_pass(name: str) -> None:
    assert stale([name], PACKAGE / "engine" / "gate.py", set()) == []
