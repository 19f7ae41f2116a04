from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.data.columns import pick_columns
from fedrecgel.data.files import read_table
from fedrecgel.data.load import load
from fedrecgel.errors import ConfigError, DataError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".json"])
def test_values_keep_their_type(tmp_path: Path, suffix: str) -> None:
    rows = [
        {
            "user_id": "007",
            "product_id": 5,
            "ts": "2020-01-02T00:00:00Z",
            "rating": 4,
            "title": "Ü",
            "more": {"a": [1]},
        },
        {"product_id": 6, "user_id": "8", "ts": "2020-01-01T00:00:00Z", "rating": 4.5, "title": None},
    ]
    path = write(tmp_path / f"mine{suffix}", "".join(json.dumps(row) + "\n" for row in rows))
    found = pick_columns(read_table(path))
    assert (found.users.to_pylist(), found.items.to_pylist()) == (["007", "8"], [5, 6])
    assert found.times is not None
    assert found.times[0] > found.times[1]
    assert found.ratings is not None
    assert found.ratings.tolist() == [4, 4.5]
    assert load(path, min_interactions=1).item_titles == ["Ü", "6"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'[{"user":1,"item":2}]\n', "one JSON object per line. The first line is a list"),
        (b"user,item\n1,2\n", "one JSON object per line. The first line is none: 'user,item'"),
        (
            b'{"user":1,"item":2}\n{"user":"a","item":2}\n',
            "'user' of .* should be a number in every line. Found a string",
        ),
        (b'{"user":1,"item":2}\n[1]\n', "should hold objects. Found a array in row 2"),
        (b'{"user":1,"item":2}\n{"user":1,"it', "one JSON object per line. Found something else"),
        (b'{"user":1,"film":2}\n', "should have a column 'item'. Found: user, film"),
        (b'{"user":[1],"item":2}\n', r"should hold numbers or text. Found \[1\]"),
        (b'{"user":1,"item":"\xff"}\n', "The first line is none"),
        (b'{"user":1,"item":"a"}\n{"user":1,"item":"\xff"}\n', "should be UTF-8"),
        (b'{"user":1,"item":2,"x":"' + b"a" * 3_000_000 + b'"}\n', "The first line is none"),
        (b'{"user":1,"item":2}\n{"user":1,"item":2,"x":"' + b"a" * 3_000_000 + b'"}\n', "at most 1 MB. Found a longer"),
        (b'{"user":1,"item":2,"x":' + b"[" * 300_000 + b"\n", "The first line is none"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, content: bytes, words: str) -> None:
    path = write(tmp_path / "mine.jsonl", content)
    with pytest.raises(DataError, match=words) as error:
        read_table(path)
    assert str(path) in str(error.value)


def test_missing_values_and_named_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", '{"user":1,"item":2}\n{"item":2}\n')
    with pytest.raises(DataError, match=r"no missing values\. Found 1 of 2"):
        pick_columns(read_table(path), where=str(path))
    with pytest.raises(ConfigError, match="names columns of text files by position"):
        read_table(path, columns=["user", "item"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**53), st.text(min_size=1, max_size=8)), min_size=1, max_size=10))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]]) -> None:
    path = tmp_path_factory.mktemp("json") / "mine.jsonl"
    path.write_text("".join(json.dumps({"user": user, "item": item}) + "\n" for user, item in rows), encoding="utf-8")
    found = pick_columns(read_table(path))
    assert list(zip(found.users.to_pylist(), found.items.to_pylist(), strict=True)) == rows
