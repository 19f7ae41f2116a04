"""docs/one_round.md reads what a round calls, and no more: counted on a round of FedRecGEL with `mf`."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections import defaultdict
from types import CodeType, FrameType

import torch
from tests.builders import engine_of, problem_of, random_split
from tests.layers.pages import PACKAGE, ROOT, blocks

from fedrecgel.engine.local import LocalSettings
from fedrecgel.engine.run import run
from fedrecgel.methods.fedrecgel import FedRecGEL

PAGE = ROOT / "docs" / "one_round.md"
LIMIT = 300
"""Lines of code a reader follows: every function that the method and its model call in a round, and the loop."""
ENTRIES = ("cohort", "broadcast", "client_update", "server_update")


def follow(entries: tuple[str, ...] = ENTRIES) -> dict[str, dict[str, int]]:
    """Lines of code, without docstrings and blank lines, of every function called; by file."""
    method, split = FedRecGEL(model="mf"), random_split()
    engine = engine_of(method, split, dtype=torch.float32, local=LocalSettings(workers=1))  # in this thread
    server = method.init_server(problem_of(split, torch.float32), engine.draws)
    called: dict[CodeType, int] = {}
    depth = 0

    def watch(frame: FrameType, event: str, value: object) -> None:
        nonlocal depth
        code = frame.f_code
        ours = code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<")
        entry = ours and code.co_name in entries
        if event == "call":
            depth += bool(entry or depth)
            if ours and (depth or code.co_filename.endswith("engine/run.py")):
                called[code] = code.co_firstlineno
        elif event == "return":
            depth -= bool(depth)

    sys.setprofile(watch)
    try:
        list(run(method, engine, server, 1, engine.draws))
    finally:
        sys.setprofile(None)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for code in called:
        place = code.co_filename.removeprefix(f"{PACKAGE}/")
        found[place][code.co_qualname] = lines_of(code)
    return found


def lines_of(code: CodeType) -> int:
    """Lines of a function without its docstring, blank lines and comments."""
    source = textwrap.dedent(inspect.getsource(code))
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    first = node.body[0]
    text = set()
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        text = set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(1 for number, line in lines if number not in text and line.strip() and not line.strip().startswith("#"))


def test_a_round_is_short_and_the_page_lists_what_it_calls() -> None:
    found = follow()
    total = sum(sum(functions.values()) for functions in found.values())
    table = "\n".join(f"{place} {functions}" for place, functions in sorted(found.items()))
    assert total < LIMIT, f"{total} lines\n{table}"
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(?:src/fedrecgel/)?([\w/]+\.py)` \| (\d+) \|", text, re.MULTILINE)
    listed = {place: int(lines) for place, lines in rows}
    assert listed == {place: sum(functions.values()) for place, functions in found.items()}, table
    assert f"**{total} lines in {len(found)} files**" in text
    whole = follow((*ENTRIES, "train"))
    lines = sum(sum(functions.values()) for functions in whole.values())
    assert f"{lines} lines in {len(whole)} files" in text, "with the engine"


def test_it_quotes_the_source() -> None:
    source = {line.strip() for path in PACKAGE.rglob("*.py") for line in path.read_text(encoding="utf-8").splitlines()}
    quoted = [line.strip() for block in blocks(PAGE) if block.language == "python" for line in block.lines]
    stale = [line for line in quoted if line not in source | {""}]
    assert quoted
    assert not stale, f"docs/one_round.md quotes lines that are no longer in the source: {stale}"
