from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import fedrecgel as fr
from fedrecgel.data.load import DataSettings
from fedrecgel.data.split import SplitSettings
from fedrecgel.data.wording import ARGUMENTS, in_python
from fedrecgel.errors import ConfigError, DataError


def test_every_setting_of_data_and_split_is_known() -> None:
    assert set(ARGUMENTS) >= {entry.name for kind in (DataSettings, SplitSettings) for entry in fields(kind)}


def test_files_are_not_settings() -> None:
    kept = "/home/data.item/data.csv and 'data.item' stay; see data.parquet."
    assert in_python(kept) == kept


@pytest.mark.parametrize("door", ["file", "frame"])
def test_errors_name_arguments(tmp_path: Path, door: str) -> None:
    frame = {"user": [1, 1], "article": [2, 3], "clock": [1, 2]}
    path = tmp_path / "mine.csv"
    path.write_text("user,article,clock\n1,2,1\n1,3,2\n")
    source = path if door == "file" else frame
    with pytest.raises(DataError, match=r'Found: user, article, clock\. Name it with item="…"$'):
        fr.load(source)
    with pytest.raises(DataError, match=r"the column 'day' \(timestamp\)"):
        fr.load(source, item="article", timestamp="day")
    with pytest.raises(DataError, match=r"Lower min_interactions or add data"):
        fr.load(source, item="article", min_interactions=9)
    with pytest.raises(DataError, match=r'^min_rating needs a rating column.*Name it with rating="…"'):
        fr.load(source, item="article", min_rating=3)
    with pytest.raises(DataError, match=r"Lower candidates or use a larger catalogue"):
        fr.load(source, item="article", min_interactions=2).split()


def test_columns_by_position_belong_to_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="columns and data_dir belong to files"):
        fr.load({"user": [1], "item": [2]}, columns="user,item")
    path = tmp_path / "mine.csv"
    path.write_text("1,2,3,4,5\n")
    with pytest.raises(DataError, match='Name them with columns="user,item,…"'):
        fr.load(path)
