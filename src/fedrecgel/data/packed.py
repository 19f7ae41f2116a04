"""Packed files: `.gz` and `.zst` around any format, unpacked to a file of their own within limits.

A kilobyte of either can unfold to any size. Bytes and lines are counted while they are written, and nothing is held in
memory but a block.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from fedrecgel.data.parquet import MAX_ROWS, MAX_UNFOLDED, OTHERWISE
from fedrecgel.errors import DataError

PACKERS = {".gz": "gzip", ".zst": "zstd"}
"""By suffix, as Arrow names them."""
BLOCK = 1 << 20


def inner_name(path: Path) -> str:
    """The name of a file without the suffix of its packing."""
    return path.stem if path.suffix.lower() in PACKERS else path.name


@contextmanager
def unpacked(path: Path, *, text: bool) -> Iterator[Path]:
    """The path itself, or that of a temporary copy without its packing.

    Args:
        path: any file.
        text: whether lines are rows and are counted, too.

    Raises:
        DataError: it is damaged, unfolds to too much, or there is no room for it.
    """
    packer = PACKERS.get(path.suffix.lower())
    if packer is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fedrecgel-") as folder:
        copy = Path(folder) / "unpacked"
        _unpack(path, packer, copy, text=text)
        yield copy


def _unpack(path: Path, packer: str, copy: Path, *, text: bool) -> None:
    n_bytes = n_lines = 0
    try:
        with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, packer) as stream, copy.open("wb") as out:
            while block := stream.read(BLOCK):
                n_bytes += len(block)
                n_lines += block.count(b"\n") if text else 0
                if n_bytes > MAX_UNFOLDED or n_lines > MAX_ROWS:
                    raise DataError(
                        f"{path} should unfold to at most {MAX_UNFOLDED / (1 << 30):g} GB and {MAX_ROWS:,} rows. "
                        f"Found more. {OTHERWISE}"
                    )
                out.write(block)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(". ")
        raise DataError(f"{path} should be a whole {packer} file. Found: {reason}. Pack it again.") from error
    if n_bytes == 0:
        raise DataError(f"{path} should hold interactions. Found an empty file.")
