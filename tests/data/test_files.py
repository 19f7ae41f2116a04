from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.data.columns import ColumnNames, pick_columns
from fedrecgel.data.delimited import read_delimited
from fedrecgel.data.files import read_table
from fedrecgel.data.load import load
from fedrecgel.errors import DataError

TABLE = pa.table({"user": [3, 1, 1], "item": [7, 8, 9], "rating": [1.0, 2.5, 3.0], "timestamp": [30, 10, 20]})


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_table(table: Any, path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return path
    delimiter = "," if path.suffix == ".csv" else "\t"
    if path.suffix == ".inter":
        kinds = {"user": "user_id:token", "item": "item_id:token"}
        table = table.rename_columns([kinds.get(name, f"{name}:float") for name in table.column_names])
    pa_csv.write_csv(table, path, pa_csv.WriteOptions(delimiter=delimiter))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".inter", ".CSV"])
def test_every_format_gives_the_same_columns(tmp_path: Path, suffix: str) -> None:
    path = write_table(TABLE, tmp_path / f"mine{suffix.lower()}").rename(tmp_path / f"mine{suffix}")
    columns = pick_columns(read_table(path))
    assert columns.users.to_pylist() == [3, 1, 1]
    assert columns.items.to_pylist() == [7, 8, 9]
    assert columns.times is not None
    assert np.argsort(columns.times).tolist() == [1, 2, 0]
    assert columns.ratings is not None
    assert columns.ratings.tolist() == [1.0, 2.5, 3.0]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_only_needed_columns_are_read(tmp_path: Path, suffix: str) -> None:
    extra = TABLE.append_column("comment", pa.array(["a", "b", "c"]))
    path = write_table(extra, tmp_path / f"mine{suffix}")
    assert read_table(path, roles=["user", "item"]).column_names == ["user", "item"]


def test_extra_columns_may_hold_anything(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", "user,item,comment\n1,2,é\n1,3,\n".encode("latin-1"))
    assert read_table(path).num_rows == 2


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["7", "10", "-3", "0"], [7, 10, -3, 0]),
        (["007", "7", "10"], ["007", "7", "10"]),
        (["1", "A2"], ["1", "A2"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["+1", "1"], ["+1", "1"]),
        (["1.0", "2"], ["1.0", "2"]),
        (["ü", '"NA"'], ["ü", "NA"]),
    ],
)
def test_ids_are_integers_only_if_nothing_is_lost(tmp_path: Path, ids: list[str], expected: list[Any]) -> None:
    path = write(tmp_path / "mine.csv", "user,item\n" + "".join(f"{one},1\n" for one in ids))
    assert pick_columns(read_table(path)).users.to_pylist() == expected


def test_ids_agree_across_blocks(tmp_path: Path) -> None:
    n = 400_000  # several blocks of the reader, each with its own dictionary
    users = np.arange(n) * 7919 % n
    path = write(tmp_path / "mine.csv", "user,item\n" + "".join(f"u{one},1\n" for one in users))
    assert pick_columns(read_table(path)).users.to_pylist() == [f"u{one}" for one in users]


def test_a_rating_may_turn_into_a_fraction_late(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", "user,item,rating\n" + "1,2,3\n" * 300_000 + "1,2,3.5\n")
    ratings = pick_columns(read_table(path)).ratings
    assert ratings is not None
    assert ratings[-1] == 3.5


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", "empty file"),
        ("blank.csv", b"\n\n", "empty file"),
        ("empty.parquet", b"", "empty file"),
        ("header.csv", b"user,item", "no rows"),
        ("ragged.csv", b"user,item\n1,2\n3,4,5\n", r"should have 2 columns\. Found 3 in row 3"),
        ("short.tsv", b"user\titem\n1\n", r"should have 2 columns\. Found 1 in row 2"),
        ("latin.csv", "user,item\né,2\n".encode("latin-1"), "should be UTF-8"),
        ("latin_header.csv", "usér,item\n1,2\n".encode("latin-1"), "should be UTF-8"),
        ("utf16.csv", "user,item\n1,2\n".encode("utf-16"), "UTF-16"),
        ("fake.parquet", b"user,item\n1,2\n", "should be a Parquet file"),
        (
            "mine.xls",
            b"user,item\n1,2\n",
            r"\.csv, \.tsv, .* \.parquet file, .*with \.gz or \.zst after it.*suffix '\.xls'",
        ),
        ("mine.gz", b"user,item\n1,2\n", r"suffix '\.gz'"),
        ("mine", b"user,item\n1,2\n", "no suffix"),
        ("missing.csv", b"user,film\n1,2\n", r"column 'item'. Found: user, film"),
        ("one.csv", b"user\n1\n", "Is the first line a header, and are columns parted"),
        ("words.csv", b"user,item,rating\n1,2,3\n1,2,good\n", r"Column 3 of .* in row 3: invalid value 'good'"),
        ("quote.csv", b'user,item\n1,"2\n1,3\n', "stand on one line. Found a line end: is a quote not closed"),
        ("mark.csv", b"\xef\xbb\xbf\n", "empty file"),
        ("utf16_unmarked.csv", "user,item\n1,2\n".encode("utf-16-le"), "Found a zero byte"),
        ("packed.csv", b"\x1f\x8b\x08\x00\x00\x00user,item\n1,2\n", "Found a zero byte"),
        ("wide.csv", b"user,item" + b",c" * 10_000 + b"\n", r"at most 10,000 columns\. Found 10,002"),
        ("long_header.csv", b"a" * 1_100_000, "header of .* should have at most 1 MB"),
        ("long.csv", b'user,item\n1,"' + b"a" * 3_000_000 + b'"\n', "Each line of .* at most 1 MB. Found a longer"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match=words) as error:
        read_table(path)
    assert str(path) in str(error.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("user,item\n", "no rows"),
        ("user,item\n1,2\n,3\n", "no missing values. Found 1 of 2"),
        ("user,item\n1,NaN\n1,3\n", "no missing values. Found 1 of 2"),
        ("user,item,timestamp\n1,2,\n1,3,4\n", "no missing values"),
        ("user,item,timestamp\n1,2,soon\n1,3,later\n", "numbers or ISO dates. Found soon"),
    ],
)
def test_bad_values_are_explained(tmp_path: Path, content: str, words: str) -> None:
    path = write(tmp_path / "mine.csv", content)
    with pytest.raises(DataError, match=words):
        pick_columns(read_table(path), where=str(path))


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no file"):
        read_table(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="Found a directory"):
        read_table(tmp_path)


def test_pipes_devices_and_sockets_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "endless.csv").symlink_to("/dev/zero")
    (tmp_path / "folder.csv").mkdir()
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(tmp_path / "s.csv"))
        for name, kind in {"pipe": "pipe", "endless": "device", "folder": "directory", "s": "socket"}.items():
            with pytest.raises(DataError, match=f"Data should be one file. Found a {kind}: .*{name}.csv"):
                load(tmp_path / f"{name}.csv")
    with pytest.raises(DataError, match="should be readable"):
        read_table(tmp_path / "a\0b.csv")


def test_byte_order_marks_and_windows_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", b"\xef\xbb\xbfuser,item\r\n1,2\r\n3,4\r\n")
    assert pick_columns(read_table(path)).items.to_pylist() == [2, 4]


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", "user,item\n1,2\n")
    path.chmod(0)
    with pytest.raises(DataError, match="should be readable"):
        read_table(path)


def test_damaged_parquet(tmp_path: Path) -> None:
    path = write_table(TABLE, tmp_path / "mine.parquet")
    damaged = bytearray(path.read_bytes())
    damaged[8:60] = b"x" * 52
    with pytest.raises(DataError, match="should be a Parquet file"):
        read_table(write(path, bytes(damaged)))


def test_columns_given_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", "who,what\n1,2\n")
    assert read_table(path, ColumnNames(user="who", item="what")).column_names == ["who", "what"]
    with pytest.raises(DataError, match="column 'whom'"):
        read_table(path, ColumnNames(user="whom"))


def test_a_raw_file_without_its_column(tmp_path: Path) -> None:
    path = write(tmp_path / "raw.csv", "a,b\n1,2\n")
    with pytest.raises(DataError, match="should have a column 'c'"):
        read_delimited(path, ",", {"c": pa.int64()})


ids = st.one_of(st.integers(-(10**17), 10**17).map(str), st.text("abcü07 ;'-", min_size=1, max_size=4))
rows = st.lists(st.tuples(ids, ids, st.integers(0, 10**10)), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(rows=rows, order=st.randoms(use_true_random=False))
def test_round_trip_and_row_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int]], order: Any
) -> None:
    folder = tmp_path_factory.mktemp("round")
    shuffled = rows.copy()
    order.shuffle(shuffled)
    found = []
    for content, suffix in ((rows, ".csv"), (shuffled, ".csv"), (rows, ".parquet")):
        columns = {"user": [r[0] for r in content], "item": [r[1] for r in content], "time": [r[2] for r in content]}
        found.append(load(write_table(pa.table(columns), folder / f"mine{suffix}"), min_interactions=1))
    original, permuted, typed = found
    assert (original.user_ids, original.item_ids) == (permuted.user_ids, permuted.item_ids)
    assert {str(one) for one in original.user_ids} == set(typed.user_ids)
    for data in (original, permuted):
        assert data.times is not None
        named = [
            (str(data.user_ids[user]), str(data.item_ids[item]), int(time))
            for user, item, time in zip(data.users, data.items, data.times, strict=True)
        ]
        assert named == (rows if data is original else shuffled)
