"""Text of others, where it is shown."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrecgel.display.text import RESERVED, in_latex, in_markdown, markdown_code, slug, visible

ANY = st.text(st.characters())
"""Halves of characters included."""


@given(ANY)
def test_nothing_invisible_is_left_and_json_stays_json(text: str) -> None:
    shown = visible(text)
    assert shown.encode().decode() == shown
    assert all(char.isprintable() or char in "\n\r\t" or not char.isascii() for char in shown)
    assert json.loads(visible(json.dumps(text))) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("a$b^c~d", r"a\$b\textasciicircum{}c\textasciitilde{}d"),
        ("50% & more\n% x", r"50\% \& more \% x"),
        ("ρ ± 1", r"$\rho$ $\pm$ 1"),
        ("ε ≥ 2", r"$\varepsilon$ $\ge$ 2"),
    ],
)
def test_latex_obeys_no_character(text: str, shown: str) -> None:
    assert in_latex(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\\|b", "a\\\\\\|b"),
        ("<img src=x>", "\\<img src=x>"),
        ("[x](javascript:y)", "[x\\](javascript:y)"),
        ("+1.0 [+0.5, +1.5], Bold (*), a_b", "+1.0 [+0.5, +1.5], Bold (*), a_b"),
        ("**best** _it_ &lt;", "\\*\\*best\\*\\* \\_it\\_ \\&lt;"),
        ("a\n\n# b", "a # b"),
    ],
)
def test_markdown_shows_text_as_text(text: str, shown: str) -> None:
    assert in_markdown(text) == shown


@given(st.text("`a \n", min_size=1))
def test_code_cannot_be_left(text: str) -> None:
    code = markdown_code(text)
    fence = re.match("`+", code)
    assert fence is not None
    inner = code[len(fence[0]) : -len(fence[0])]
    assert code.endswith(fence[0])
    assert fence[0] not in re.findall("`+", inner)
    assert "\n" not in code


@given(ANY, st.lists(ANY, max_size=3))
def test_a_slug_is_one_new_name_in_its_folder(text: str, others: list[str]) -> None:
    taken: set[str] = set()
    for other in others:
        taken.add(slug(other, taken))
    found = slug(text, taken)
    assert len({*taken, found}) == len(others) + 1
    assert found.casefold() not in {other.casefold() for other in taken}
    for kind in (PurePosixPath, PureWindowsPath):
        assert kind(f"{found}.md").name == f"{found}.md"
    assert not found.startswith((".", "-"))
    assert found.partition(".")[0].lower() not in RESERVED
    assert len(f".{found}.json.tmp".encode()) < 256


def test_usual_names_stay_as_they_are() -> None:
    assert slug("sensitivity-movielens-100k-published-rho_co") == "sensitivity-movielens-100k-published-rho_co"
    assert slug("main-shop.csv") == "main-shop.csv"
