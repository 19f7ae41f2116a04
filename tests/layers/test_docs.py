"""The documentation agrees with the code: links, paths, names, quoted lines, commands and generated tables.

After a change of settings, methods or results, `python tests/layers/test_docs.py` writes the generated parts of
README.md, docs/config.md and docs/methods/index.md again.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import pytest

from fedrecgel.cli.common import field_docs
from fedrecgel.cli.main import parser
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import section_types

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fedrecgel"
METHODS_PAGE = ROOT / "docs" / "methods" / "index.md"
ONE_ROUND = [PACKAGE / "engine" / "run.py", PACKAGE / "methods" / "fedrecgel.py", PACKAGE / "models" / "sam.py"]
ONE_ROUND_LIMIT = 150
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGE_NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

each_page = pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    lines: list[str]


def settings_text() -> str:
    """Every setting of every section, then the hyper-parameters of every method, as Markdown tables."""
    parts = []
    for section, kind in section_types().items():
        parts.append(f"### [{section}]\n\n{_sentence(kind)}\n\n{_table(kind, leave_out=('options',))}")
        if section == "method":
            parts += [
                f"#### [method] with name = {name!r}\n\n{_sentence(method)}\n\n{_table(method)}"
                + "".join(f"\n\nVariant `{variant}`: {_values(values)}." for variant, values in method.variants.items())
                for name, method in METHODS.items()
            ]
    return "\n\n".join(parts)


def _sentence(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _values(values: Any) -> str:
    return ", ".join(f"`{key} = {_toml(value)}`" for key, value in values.items())


def _table(kind: Any, leave_out: tuple[str, ...] = ()) -> str:
    docs, hints = field_docs(kind), get_type_hints(kind, include_extras=True)
    rows = ["| key | default | values | meaning |", "|---|---|---|---|"]
    for entry in fields(kind):
        if entry.name in leave_out:
            continue
        default = "none" if entry.default in (None, MISSING) else f"`{_toml(entry.default)}`"
        meaning = docs[entry.name].replace("|", "\\|")
        rows.append(f"| `{entry.name}` | {default} | {_type(hints[entry.name])} | {meaning} |")
    return "\n".join(rows)


def _toml(value: object) -> str:
    """A value as a config file spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _type(hint: Any) -> str:
    """What a value may be, in words."""
    if hasattr(hint, "__metadata__"):
        meta, limits = hint.__metadata__[0], (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))
        bounds = [f"{sign} {getattr(meta, name)}" for name, sign in limits if getattr(meta, name) is not None]
        return " ".join([_type(hint.__origin__), ", ".join(bounds)])
    if get_origin(hint) is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in get_args(hint))
    if get_origin(hint) is tuple:
        return f"list of {_type(get_args(hint)[0])}"
    if type(None) in get_args(hint):
        return " or ".join(_type(part) for part in get_args(hint) if part is not type(None))
    return {str: "text", int: "integer", float: "number", bool: "`true`, `false`"}[hint]


def methods_text() -> str:
    """Kind, uploads and needs of every method, as a Markdown table."""
    rows = ["| method | kind | paper | leaves the device | the server needs |", "|---|---|---|---|---|"]
    for name, kind in METHODS.items():
        sent = ", ".join(f"`{value}`" for value in sorted(kind().leaves_device())) or "nothing"
        needs = kind().server_needs.name.lower()
        rows.append(f"| [{name}]({name}.md) | {kind.kind} | {kind.paper} | {sent} | `{needs}` |")
    return "\n".join(rows)


def overview_text() -> str:
    """The table of all methods on all data sets, as `fedrecgel report` wrote it."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    lines = text.partition("### Every method on every data set\n\n")[2].splitlines()
    return "\n".join(takewhile(lambda line: line.startswith("|"), lines))


GENERATED = {
    ROOT / "README.md": ("overview", overview_text),
    ROOT / "docs" / "config.md": ("settings", settings_text),
    METHODS_PAGE: ("methods", methods_text),
}


def generated_page(page: Path) -> str:
    """A page with its generated part as it should be."""
    mark, text = GENERATED[page]
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->")
    _, end, after = rest.partition(f"<!-- /{mark} -->")
    return f"{before}{start}\n\n{text()}\n\n{end}{after}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    found: list[Block] = []
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = not inside
            if inside:
                found.append(Block(line[3:].strip(), []))
        elif inside:
            found[-1].lines.append(line)
    return found


def spans(page: Path) -> list[str]:
    """What stands in single backticks outside of blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


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


def defined_names(path: Path) -> set[str]:
    """Functions, classes, methods, fields and constants of a source file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return names


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_generated_parts_are_current(page: Path) -> None:
    wanted = generated_page(page) == page.read_text(encoding="utf-8")
    assert wanted, f"{page} is not what the code says: run `python tests/layers/test_docs.py`"


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
def test_named_functions_exist(page: Path) -> None:
    """A reference is `path.py: name`, with a path from the root of the repository or of the package."""
    for span in spans(page):
        if not (match := re.fullmatch(r"(\S+\.py): ([\w.]+)", span)):
            continue
        path = next((base / match[1] for base in (ROOT, PACKAGE) if (base / match[1]).exists()), None)
        assert path is not None, f"{page.name}: there is no file of `{span}`"
        unknown = set(match[2].split(".")) - defined_names(path)
        assert not unknown, f"{page.name}: `{span}` names {sorted(unknown)}, which {path.name} does not define"


@each_page
def test_commands_parse(page: Path) -> None:
    wrong = [call for call in commands(page) if not parses(call)]
    assert not wrong, f"{page.name}: no valid commands (output belongs in a ```text block): {wrong}"


def test_one_round_quotes_the_source() -> None:
    page = ROOT / "docs" / "one_round.md"
    source = {line.strip() for path in ONE_ROUND for line in path.read_text(encoding="utf-8").splitlines()}
    quoted = [line.strip() for block in blocks(page) if block.language == "python" for line in block.lines]
    stale = [line for line in quoted if line not in source | {""}]
    assert quoted
    assert not stale, f"docs/one_round.md quotes lines that are no longer in the source: {stale}"


def test_one_round_is_short() -> None:
    assert len((ROOT / "docs" / "one_round.md").read_text(encoding="utf-8").splitlines()) < ONE_ROUND_LIMIT


def test_every_method_has_a_page() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "methods").glob("*.md")} - {METHODS_PAGE.stem}
    assert pages == set(METHODS)


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} - {"index.md"}
    missing = {page for page in pages if f"]({page})" not in index}
    assert not missing, f"docs/index.md leaves out {sorted(missing)}"


if __name__ == "__main__":
    for name in GENERATED:
        name.write_text(generated_page(name), encoding="utf-8")
