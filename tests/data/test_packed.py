"""Packed files equal plain ones; bombs, cuts and other contents are refused."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrecgel.data import packed
from fedrecgel.data.columns import pick_columns
from fedrecgel.data.files import read_table
from fedrecgel.data.load import load
from fedrecgel.errors import DataError

TABLE = pa.table({"user": [3, 1, 1], "item": [7, 8, 9], "timestamp": [30, 10, 20]})
TEXTS = {
    "csv": "user,item,timestamp\n3,7,30\n1,8,10\n1,9,20\n",
    "tsv": "user\titem\ttimestamp\n3\t7\t30\n1\t8\t10\n1\t9\t20\n",
    "inter": "user_id:token\titem_id:token\ttimestamp:float\n3\t7\t30\n1\t8\t10\n1\t9\t20\n",
    "jsonl": "".join(
        f'{{"user":{u},"item":{i},"timestamp":{t}}}\n' for u, i, t in [(3, 7, 30), (1, 8, 10), (1, 9, 20)]
    ),
    "dat": "3::7::5::300000000\n1::8::5::100000000\n1::9::5::200000000\n",
}


def pack(path: Path, content: bytes) -> Path:
    with pa.OSFile(str(path), "wb") as raw, pa.CompressedOutputStream(raw, packed.PACKERS[path.suffix]) as stream:
        stream.write(content)
    return path


def content_of(kind: str) -> bytes:
    if kind != "parquet":
        return TEXTS[kind].encode()
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("kind", [*TEXTS, "parquet"])
@pytest.mark.parametrize("packer", [".gz", ".zst"])
def test_a_packed_file_reads_as_a_plain_one(tmp_path: Path, kind: str, packer: str) -> None:
    found = pick_columns(read_table(pack(tmp_path / f"mine.{kind}{packer}", content_of(kind))))
    assert (found.users.to_pylist(), found.items.to_pylist()) == ([3, 1, 1], [7, 8, 9])
    assert found.times is not None
    assert found.times.argsort().tolist() == [1, 2, 0]


def test_the_name_has_no_suffixes(tmp_path: Path) -> None:
    assert load(pack(tmp_path / "shop.csv.gz", content_of("csv")), min_interactions=1).name == "shop"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cut.csv.gz", gzip.compress(b"user,item\n" + b"1,2\n" * 500)[:-20], "should be a whole gzip file"),
        ("plain.csv.gz", b"user,item\n1,2\n", "should be a whole gzip file"),
        ("other.csv.zst", gzip.compress(b"user,item\n1,2\n"), "should be a whole zstd file"),
        ("nothing.csv.gz", gzip.compress(b""), "Found an empty file"),
        ("zeros.csv.gz", gzip.compress(b"\0" * 1000), "Found a zero byte"),
        ("column.csv.gz", gzip.compress(b"user,film\n1,2\n"), "should have a column 'item'"),
        ("ragged.csv.gz", gzip.compress(b"user,item\n1,2\n1,2,3\n"), "should have 2 columns. Found 3 in row 3"),
        ("fake.parquet.gz", gzip.compress(b"user,item\n1,2\n"), "should be a Parquet file"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as error:
        read_table(path)
    assert str(path) in str(error.value)
    assert tempfile.gettempdir() not in str(error.value).replace(str(path), "")


@pytest.mark.parametrize("limit", [{"MAX_UNFOLDED": 1 << 20}, {"MAX_ROWS": 1000}])
def test_a_bomb_is_stopped_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]) -> None:
    path = pack(tmp_path / "bomb.csv.zst", b"user,item\n" + b"1,2\n" * 5_000_000)
    assert path.stat().st_size < 20_000
    for name, value in limit.items():
        monkeypatch.setattr(packed, name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(DataError, match="should unfold to at most"):
        read_table(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bomb.csv.zst"]  # the copy is gone
