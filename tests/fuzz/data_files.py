"""Strategies: data files of every format, some of them damaged."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

SUFFIXES = (".csv", ".parquet", ".tsv", ".jsonl", ".parquet", ".inter", ".txt", ".csv.gz", ".jsonl.zst", ".parquet.gz")
SEPARATORS = (",", ",", "\t", ";", "|", "::", " ")
NAMES = (
    "user",
    "item",
    "timestamp",
    "rating",
    "user_id:token",
    "item_id:token",
    "timestamp:float",
    "uid",
    "comment",
    "title",
    "",
)
PIECES = (
    *(b'"', b"\n", b"\r\n", b",", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"NaN", b"inf", b"-", b"1e400"),
    *(b"-9223372036854775808", b"18446744073709551616", b"2020-01-01", b"12:30:00", b"PAR1", b"\x7f\xff\xff\xff", b" "),
)
KINDS: tuple[Any, ...] = (
    *(pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(2), pa.decimal128(30, 2)),
    *(pa.time32("s"), pa.time64("ns"), pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("ns", "UTC")),
    *(pa.duration("s"), pa.list_(pa.int64()), pa.struct([("user", pa.int64())]), pa.map_(pa.string(), pa.int64())),
    *(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64())),
)

more = st.just(["timestamp"]) | st.lists(st.sampled_from(NAMES), max_size=2)
lengths = st.sampled_from([20, 30, 40, 25, 1, 0])
cells = st.one_of(
    st.integers(0, 12).map(str),
    st.sampled_from(["", "007", "1.5", "-1", "x", "ü", '"a"', '"a,b"', "2020-01-02", "1600000000", "NaN", "9" * 19]),
    st.text(max_size=3),
)


@st.composite
def text_files(draw: st.DrawFn, delimiter: str) -> bytes:
    """Rows below a header, or without one, as they are or ragged."""
    header = ["user", "item", *draw(more)]
    n_rows, step = draw(lengths), draw(st.integers(1, 7))
    rows = [[str(k % 3), *(str(k * step % 13) for _ in header[1:])] for k in range(n_rows)]
    for row in rows[: draw(st.integers(0, 3))]:
        row[draw(st.integers(0, len(row) - 1))] = draw(cells)
        if draw(st.integers(0, 9)) == 0:
            row.append("1")
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    named = [header] if draw(st.integers(0, 3)) else []
    return end.join(delimiter.join(row) for row in [*named, *rows]).encode(errors="surrogateescape")


@st.composite
def json_files(draw: st.DrawFn) -> bytes:
    """An object a line; some values of another type, some missing."""
    names, n_rows, step = ["user", "item", *draw(more)], draw(lengths), draw(st.integers(1, 7))
    odd = st.none() | st.booleans() | st.text(max_size=3) | st.floats() | st.lists(st.integers(), max_size=2)
    rows: list[dict[str, Any]] = [
        {name: k % 3 if name == "user" else k * step % 13 for name in names} for k in range(n_rows)
    ]
    for row in rows[: draw(st.sampled_from([0, 0, 1, 3]))]:
        row[draw(st.sampled_from(names))] = draw(odd)
    return "".join(json.dumps(row) + "\n" for row in rows).encode(errors="surrogatepass")


@st.composite
def parquet_files(draw: st.DrawFn) -> bytes:
    """Columns of any type."""
    n_rows = draw(lengths)
    names = ["user", "item", *draw(more)]
    columns = [draw(_columns(n_rows, modulus=(3, 13, 0, 0)[place])) for place in range(len(names))]
    target = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays(columns, names=names),
        target,
        compression=draw(st.sampled_from(["none", "snappy", "zstd"])),
        use_dictionary=draw(st.booleans()),
        row_group_size=draw(st.sampled_from([7, 1000])),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
    )
    return target.getvalue()


@st.composite
def _columns(draw: st.DrawFn, n_rows: int, *, modulus: int) -> Any:
    """Numbers below the modulus as some type, or some of them missing or extreme; ids of usual types most often."""
    usual = (pa.int64(), pa.string(), pa.float64(), pa.uint64())
    kind = draw(st.sampled_from(usual if modulus and draw(st.integers(0, 3)) else KINDS))
    step, missing = (1 if modulus == 3 else draw(st.integers(1, 7))), draw(st.integers(0, 9)) == 0
    numbers: list[Any] = [None if missing and k == n_rows // 2 else k * step % (modulus or 13) for k in range(n_rows)]
    if n_rows and draw(st.integers(0, 4)) == 0 and kind in (pa.int64(), pa.uint64(), pa.float64()):
        extreme = {pa.int64(): -(2**63), pa.uint64(): 2**64 - 1, pa.float64(): float("inf")}
        numbers[draw(st.integers(0, n_rows - 1))] = extreme[kind]
    return _array(numbers, kind)


def _array(numbers: list[Any], kind: Any) -> Any:
    def each(make: Any) -> list[Any]:
        return [None if number is None else make(number) for number in numbers]

    if pa.types.is_dictionary(kind):
        return _array(numbers, kind.value_type).dictionary_encode()
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array(each(lambda number: f"{number:02}".encode()[:2]), kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.array(each(str), kind)
    if pa.types.is_map(kind):
        return pa.array(each(lambda number: [("a", number)]), kind)
    if pa.types.is_list(kind):
        return pa.array(each(lambda number: [number]), kind)
    if pa.types.is_struct(kind):
        return pa.array(each(lambda number: {"user": number}), kind)
    if pa.types.is_boolean(kind):
        return pa.array(each(lambda number: number % 2 == 0), kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(numbers))
    if pa.types.is_decimal(kind) or pa.types.is_date64(kind):
        return pa.array(numbers, pa.int32()).cast(pa.date32() if pa.types.is_date64(kind) else pa.int64()).cast(kind)
    if pa.types.is_float16(kind):
        return pa.array(each(float), pa.float64()).cast(kind)
    return pa.array(numbers, kind)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Cut, flipped, with something put in or taken out, up to three times."""
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        place = draw(st.integers(0, len(content)))
        if draw(st.booleans()):
            place = max(0, len(content) - place % 300)  # a Parquet file has its footer there
        match draw(st.sampled_from(["cut", "flip", "insert", "remove", "repeat"])):
            case "cut":
                content = content[:place]
            case "flip" if place < len(content):
                changed = content[place] ^ (1 << draw(st.integers(0, 7)))
                content = content[:place] + bytes([changed]) + content[place + 1 :]
            case "insert":
                content = content[:place] + draw(st.sampled_from(PIECES) | st.binary(max_size=8)) + content[place:]
            case "remove":
                content = content[:place] + content[place + draw(st.integers(1, 20)) :]
            case "repeat":
                content = content[:place] + content[max(0, place - 50) : place] + content[place:]
    return content


@st.composite
def data_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A suffix and what the file holds, which need not fit."""
    suffix = draw(st.sampled_from(SUFFIXES))
    kind, packer = [*suffix.split("."), ""][1:3]
    made = {"parquet": parquet_files(), "jsonl": json_files()}
    content = draw(made[kind] if kind in made else text_files(draw(st.sampled_from(SEPARATORS))))
    if draw(st.integers(0, 40)) == 0:
        suffix = draw(st.sampled_from(SUFFIXES))
    if not packer:
        return suffix, draw(damaged(content))
    if draw(st.booleans()):
        return suffix, draw(damaged(_pack(content, packer)))
    return suffix, _pack(draw(damaged(content)), packer)


def _pack(content: bytes, packer: str) -> bytes:
    return gzip.compress(content) if packer == "gz" else bytes(pa.compress(content, "zstd", asbytes=True))
