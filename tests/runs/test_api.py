"""What `fedrecgel.train` takes as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import fedrecgel as fr
from fedrecgel.errors import ConfigError, DataError

FRAME = {
    "user": [f"u{k % 8}" for k in range(64)],
    "item": [(k * 7 + k // 8) % 150 for k in range(64)],
    "ts": list(range(64)),
}


def train(data: Any, **options: Any) -> fr.Result:
    return fr.train("popularity", data, split={"candidates": 20}, **options)


def test_frames_files_interactions_and_splits_give_the_same_run(tmp_path: Path) -> None:
    pl.DataFrame(FRAME).write_parquet(tmp_path / "mine.parquet")
    pl.DataFrame(FRAME).write_csv(tmp_path / "mine.csv")
    pd = pytest.importorskip("pandas")
    sources = [
        *(pd.DataFrame(FRAME), pl.DataFrame(FRAME), pl.LazyFrame(FRAME), pa.table(FRAME)),
        *(duckdb.connect().from_arrow(pa.table(FRAME)), tmp_path / "mine.parquet", str(tmp_path / "mine.csv")),
        fr.load(FRAME),
    ]
    expected = fr.train("popularity", fr.load(FRAME).split(candidates=20))
    for source in sources:
        found = train(source)
        assert (found.metrics, found.metrics_full) == (expected.metrics, expected.metrics_full)
        assert found.summary["protocol"]["fingerprint"] == expected.summary["protocol"]["fingerprint"]


def test_validation_items_are_held_out_where_a_round_is_selected_on_them() -> None:
    found = train(FRAME, evaluation={"selection": "validation"})
    assert "validation" in found.history[-1]


def test_what_is_no_data() -> None:
    with pytest.raises(ConfigError, match="The data are split already"):
        train(fr.load(FRAME).split(candidates=20))
    with pytest.raises(DataError, match="A data frame should be pandas, polars"):
        train(42)
    with pytest.raises(DataError, match=r'Found: who, item\. Name it with user="…"'):
        train({"who": [1], "item": [2]})
    with pytest.raises(ConfigError, match="Did you mean 'filmtrust'"):
        train("filmtrus")
