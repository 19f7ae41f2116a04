"""Separators and headers: recognised or asked for, and no row is ever lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.data.columns import pick_columns
from fedrecgel.data.files import read_table
from fedrecgel.data.load import load
from fedrecgel.data.sniff import find_separator
from fedrecgel.errors import DataError

ROWS = [(1, 10, 4.5, 1_600_000_003), (1, 20, 3.0, 1_600_000_001), (2, 10, 1.5, 1_600_000_002)]
HEADER = ["userId", "movieId", "rating", "timestamp"]


def written(path: Path, separator: str, rows: list[Any], header: list[str] | None = None) -> Path:
    lines = [*([header] if header else []), *rows]
    path.write_text("".join(separator.join(map(str, line)) + "\n" for line in lines), encoding="utf-8")
    return path


def read(path: Path, **options: Any) -> tuple[list[tuple[Any, ...]], list[str]]:
    said: list[str] = []
    found = pick_columns(read_table(path, say=said.append, **options), where=str(path))
    columns = [found.users.to_pylist(), found.items.to_pylist()]
    columns += [more.tolist() for more in (found.ratings, found.times) if more is not None]
    return list(zip(*columns, strict=True)), said


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", "::", " "])
@pytest.mark.parametrize("header", [HEADER, None])
@pytest.mark.parametrize("suffix", [".csv", ".dat"])
def test_separators_and_headers(tmp_path: Path, separator: str, header: list[str] | None, suffix: str) -> None:
    rows, said = read(written(tmp_path / f"mine{suffix}", separator, ROWS, header))
    assert rows == ROWS
    usual = separator == ("," if suffix == ".csv" else "\t")
    assert ["parted by" in sentence for sentence in said] == [True] * (not usual) + [False] * (header is None)
    if header is None:
        assert "no header: its columns are taken as user, item, rating, timestamp" in said[-1]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([("u1", 5), ("u2", 6)], "user, item"),
        ([(1, 5, 3), (2, 6, 4.5)], "user, item, rating"),
        ([("u1", "i5", "2020-01-02"), ("u2", "i6", "2020-01-03 10:00:00")], "user, item, timestamp"),
        ([(1, 5, 1_600_000_000), (2, 6, 1_600_000_001)], "user, item, timestamp"),
        ([(1, 5, 1_600_000_000, 3), (2, 6, 1_600_000_001, 4)], "user, item, timestamp, rating"),
        ([(1, 5, 3, 7), (2, 6, 4, 8)], "user, item, rating, timestamp"),
    ],
)
def test_what_positions_mean(tmp_path: Path, rows: list[Any], names: str) -> None:
    found, said = read(written(tmp_path / "mine.csv", ",", rows))
    assert [row[:2] for row in found] == [row[:2] for row in rows]
    assert f"taken as {names}. Name them with --columns" in said[0]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "1,2,3,4,5\n6,7,8,9,1\n",
            "should name the columns. Found data in 5 columns. Name them with --columns user,item",
        ),
        ("1,2,good\n3,4,bad\n", "Found data in 3 columns"),
        ("kunde,artikel\n1,2\n", "should have a column 'user'. Found: kunde, artikel"),
        ("kunde,artikel,2020\n1,2,3\n", "should have a column 'user'. Found: kunde, artikel, 2020"),
        ("anna,shoes\nbert,hats\n", "should have a column 'user'. Found: anna, shoes"),
        ("1\n2\n", "Found data in 1 columns"),
    ],
)
def test_no_row_is_taken_for_a_header_or_lost(tmp_path: Path, lines: str, words: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(lines)
    with pytest.raises(DataError, match=words):
        read(path)


def test_columns_by_hand(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", ",", [("x", 4, "a", 1), ("y", 5, "b", 2)])
    found = read_table(path, columns=["-", "item", "user", "ts"])
    assert found.column_names == ["user", "item", "ts"]
    assert found.to_pydict() == {"user": ["a", "b"], "item": [4, 5], "ts": [1, 2]}
    with pytest.raises(DataError, match=r"should name every column of .* Found 2 names and 4 columns"):
        read_table(path, columns=["user", "item"])


def test_a_header_is_skipped_where_columns_are_named_by_hand(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", ",", ROWS, HEADER)
    rows, said = read(path, columns=["user", "item", "-", "timestamp"])
    assert rows == [(user, item, time) for user, item, _, time in ROWS]
    assert said == [f"The first line of {path} is a header: it is skipped, and columns are named as given."]


@pytest.mark.parametrize("columns", [None, ["user", "item", "..."]])
def test_one_line_per_user(tmp_path: Path, columns: list[str] | None) -> None:
    path = tmp_path / "train.txt"
    path.write_text("0 10 11 12\n1 10\n2 \n3 11 14 \n")
    rows, said = read(path, columns=columns)
    assert rows == [(0, 10), (0, 11), (0, 12), (1, 10), (3, 11), (3, 14)]
    assert any("each line is taken as a user and its items" in sentence for sentence in said) == (columns is None)


def test_loading_says_what_was_assumed(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", ";", ROWS)
    with pytest.warns(UserWarning, match="no header: its columns are taken as user, item, rating, timestamp"):
        data = load(path, min_interactions=1)
    assert len(data) == 3
    assert [sentence.split()[0] for sentence in data.assumed] == ["Columns", str(path)]
    again = load(path, min_interactions=1, columns=["user", "item", "rating", "timestamp"])
    assert again.loaded_as["columns"] == "user,item,rating,timestamp"
    assert again.users.tolist() == data.users.tolist()


def test_spaces_and_commas_inside_cells_are_not_separators() -> None:
    assert find_separator(["user,item,title", '1,2,"a; b"', "1,3,one two three"], ",") == ","
    assert find_separator(["user;price", "1;2,5", "1;3,5"], ",") == ";"
    assert find_separator(["user,tags", "1,a|b", "2,a|b"], ",") == ","


cells = st.text("abc,;| \t0", min_size=1, max_size=5).filter(lambda text: text.strip() == text)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), cells), min_size=1, max_size=5))
def test_quoted_separators_keep_every_row(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    path = tmp_path_factory.mktemp("sniff") / "mine.csv"
    lines = [f'{user},{item},"{title}"' for user, item, title in rows]
    path.write_text("\n".join(["user,item,title", *lines]) + "\n")
    found = pick_columns(read_table(path))
    assert list(zip(found.users.to_pylist(), found.items.to_pylist(), strict=True)) == [row[:2] for row in rows]
    assert found.titles.to_pylist() == [row[2] for row in rows]
