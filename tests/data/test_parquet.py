"""Small files that unfold to large ones are refused before they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrecgel.data import parquet
from fedrecgel.data.columns import pick_columns
from fedrecgel.data.files import read_table
from fedrecgel.data.load import load
from fedrecgel.errors import DataError


def write(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / "mine.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_a_bomb_of_rows_is_refused_by_its_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"user": [1] * 1000, "item": [2] * 1000})
    monkeypatch.setattr(parquet, "MAX_ROWS", 999)
    monkeypatch.setattr(parquet, "_read", None)  # nothing is read
    with pytest.raises(DataError, match=r"at most 999 rows\. Found 1,000\. Hand larger data over as a data frame"):
        read_table(path)


def test_a_bomb_of_text_is_refused_by_its_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """50 MB in some kB: the same long id in every row, written out."""
    path, ids = tmp_path / "mine.parquet", pa.array(["u" * 50_000] * 100)
    table = pa.table({"user": ids, "item": list(range(100))})
    with pq.ParquetWriter(path, table.schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(10):
            writer.write_table(table)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(parquet, "MAX_UNFOLDED", 40_000_000)
    monkeypatch.setattr(parquet, "_read", None)
    with pytest.raises(DataError, match=r"unfold to at most 0 GB\. Found 0\.0 GB"):
        read_table(path)


def test_a_footer_that_says_too_little_does_not_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"user": list(range(10_000)), "item": [2] * 10_000})
    monkeypatch.setattr(parquet, "BATCH", 1000)
    monkeypatch.setattr(parquet, "_check_sizes", lambda *_: None)
    monkeypatch.setattr(parquet, "MAX_UNFOLDED", 50_000)
    with pytest.raises(DataError, match="should unfold to at most"):
        read_table(path)


def test_repeated_text_takes_memory_once(tmp_path: Path) -> None:
    path = write(tmp_path, {"user": ["x" * 200_000] * 100, "item": list(range(100))})  # 20 MB
    before = pa.total_allocated_bytes()
    data = load(path)
    assert (data.n_users, data.n_items) == (1, 100)
    table = read_table(path)
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert pick_columns(table).users.type.value_type == pa.large_string()


def test_many_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, Any] = {"user": [1], "item": [2]} | {f"c{k}": [0] for k in range(100)}
    path = write(tmp_path, columns)
    monkeypatch.setattr(parquet, "MAX_COLUMNS", 50)
    with pytest.raises(DataError, match=r"at most 50 columns\. Found 102\. Write only"):
        read_table(path)
    monkeypatch.setattr(parquet, "MAX_FOOTER", 1000)
    with pytest.raises(DataError, match=r"The footer of .* should have at most"):
        read_table(path)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1]] * 3),
        pa.array([{"a": 1}] * 3),
        pa.array([b"a"] * 3),
        pa.array([1] * 3).cast(pa.decimal128(30)),
        pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    ],
    ids=["list", "struct", "binary", "decimal", "map"],
)
def test_kinds_that_are_no_ids_are_not_read(tmp_path: Path, values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_read", None)
    with pytest.raises(DataError, match=r"Column 'user' of .* should hold numbers, text or dates"):
        read_table(write(tmp_path, {"user": values, "item": [1, 2, 3]}))


def test_text_of_wrong_bytes(tmp_path: Path) -> None:
    wrong = pa.array([b"\xff", b"a"], pa.binary()).view(pa.string())
    with pytest.raises(DataError, match="should be a Parquet file"):
        read_table(write(tmp_path, {"user": wrong, "item": [1, 2]}))


def test_text_ids_of_several_batches_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH", 7)
    users = [f"u{k % 13}" for k in range(100)]
    path = write(tmp_path, {"user": users, "item": [str(k) for k in range(100)]}, row_group_size=30)
    data = load(path, min_interactions=1)
    assert [data.user_ids[k] for k in data.users] == users
    assert data.n_items == 100


def test_columns_without_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Found columns and no rows"):
        read_table(write(tmp_path, {"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}))
