from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.builders import random_split

import fedrecgel
from fedrecgel.errors import DataError
from fedrecgel.runs.choice import read_items, read_titles
from fedrecgel.runs.result import Result


@pytest.fixture(scope="module")
def result() -> Result:
    return fedrecgel.train("popularity", random_split(n_users=5, n_items=120))


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_lists_of_items_are_lines_or_a_column(tmp_path: Path) -> None:
    assert read_items(write(tmp_path / "a.txt", "\ufeff7\n\n 8 \nB 9\n")) == ["7", "8", "B 9"]
    assert read_items(write(tmp_path / "a.csv", "name,item_id\nx,7\ny,8\n")) == ["7", "8"]
    pyarrow.parquet.write_table(pa.table({"item": [7, 8]}), tmp_path / "a.parquet")
    assert read_items(tmp_path / "a.parquet") == ["7", "8"]


def test_titles_of_some_items(result: Result, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", 'title,item\n"One, two",100\n  Ünï\tcode ,101\nElsewhere,7\n')
    with pytest.warns(UserWarning, match=r"no title for items 102, 103, 104, 105, 106 and 113 more: shown by id\."):
        titles = read_titles(path, result.item_ids)
    assert titles[:3] == ["One, two", "Ünï code", "102"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "item,title\n7,Other\n8,Others\n", r"Found 2 titles for other items: the run has items 100, 101"),
        ("t.csv", "item,name\n100,x\n", r"should have a column 'title'\. Found: item, name\."),
        ("t.csv", "", "Found an empty file"),
        ("t.csv", b"item,title\n100,\xff\xfe\n", "cannot be read: .* Save it again, as UTF-8"),
        ("t.csv", 'item,title\n100,"x\n', "cannot be read: unexpected end of data"),
        ("t.parquet", b"PAR1 cut short", "cannot be read"),
        ("absent.csv", None, "There is no file"),
    ],
)
def test_bad_titles_are_refused(
    name: str, content: str | bytes | None, message: str, result: Result, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        write(path, content)
    with pytest.raises(DataError, match=message):
        read_titles(path, result.item_ids)
