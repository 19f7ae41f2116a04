from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from fedrecgel.display.tabular import Entry, Table

TABLE = Table(
    "t",
    "A & B",
    ["method", "HR@10", "why"],
    [
        [Entry("fedncf"), Entry("91.20 ± 0.10 ▲", 0.912, "best", "paper 69.49", "minus popularity: +1"), Entry("50%")],
        [Entry("popularity"), Entry("90.00", 0.9, "second"), Entry("a_b|c")],
    ],
    ["a note"],
    "fedrecgel experiment main-table",
)


def test_markdown() -> None:
    lines = TABLE.markdown().splitlines()
    assert lines[2] == "| method | HR@10 | why |"
    assert lines[3] == "|---|---:|---|"
    assert lines[4] == "| fedncf | **91.20 ± 0.10 ▲**<br>(paper 69.49) | 50% |"
    assert lines[5] == "| popularity | <u>90.00</u> | a_b\\|c |"
    assert lines[-1] == "`fedrecgel experiment main-table`"


def test_latex_escapes_what_it_must() -> None:
    text = TABLE.latex()
    assert r"fedncf & \textbf{91.20 $\pm$ 0.10 $^{\uparrow}$} {\scriptsize (paper 69.49)} & 50\% \\" in text
    assert r"popularity & \underline{90.00} & a\_b|c \\" in text
    assert r"\begin{tabular}{lrr}" in text


def test_text_is_aligned() -> None:
    title, *lines = TABLE.text().splitlines()
    assert title == "A & B"
    assert len({len(line) for line in lines}) == 1


def test_html_carries_values_hints_and_marks() -> None:
    text = TABLE.html()
    assert 'data-value="0.912"' in text
    assert 'title="minus popularity: +1"' in text
    assert '<span class="best">91.20 ± 0.10 ▲</span><small>paper 69.49</small>' in text
    assert '<tr class="reference">' in text


@given(st.text(max_size=30))
def test_any_text_stays_text(text: str) -> None:
    """No cell can open a tag or an attribute."""
    seen: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append(tag)

    Tags().feed(Table("t", text, [text], [[Entry(text, note=text, hint=text)]]).html())
    assert set(seen) <= {"div", "table", "thead", "tr", "th", "button", "tbody", "span", "small"}
