"""Parquet files, whose few bytes may unfold to any size: limits are checked before and while one is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedrecgel.data.columns import ColumnNames, choose_columns
from fedrecgel.errors import DataError

MAX_COLUMNS = 10_000
"""Of a file, used or not."""
MAX_FOOTER = 8 << 20
"""Bytes of a Parquet file's own description, which is read whole before anything else."""
MAX_ROWS = 100_000_000
MAX_UNFOLDED = 4 << 30
"""Bytes of the columns that are used, once they are unpacked."""
BATCH = 1 << 20
"""Rows unpacked at once."""
OTHERWISE = "Hand larger data over as a data frame (Interactions.from_frame)."


def read_parquet(path: Path, names: ColumnNames, roles: Iterable[str], where: str) -> Any:
    """Read the columns of these roles; `where` is what to call the file.

    Raises:
        DataError: the file is damaged, lacks a column, holds values that are no ids, times or ratings, or is too large.
    """
    try:
        _check_footer(path, where)
        schema = pq.ParquetFile(path).schema_arrow
        chosen = choose_columns(schema.names, names, where)
        wanted = [name for role, name in chosen.items() if name is not None and role in roles]
        kinds = {name: schema.field(name).type for name in wanted}
        for name, kind in kinds.items():
            if not (pa.types.is_primitive(kind) or pa.types.is_null(kind) or _is_text(kind) or _is_words(kind)):
                raise DataError(f"Column '{name}' of {where} should hold numbers, text or dates. Found {kind}.")
        # As dictionaries, text that is repeated takes memory once.
        file = pq.ParquetFile(path, read_dictionary=[name for name, kind in kinds.items() if _is_text(kind)])
        _check_sizes(where, file.metadata, wanted)
        return _read(where, file, wanted)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0].rstrip(". ")
        raise DataError(
            f"{where} should be a Parquet file. Found something unreadable: {reason}. Write it again."
        ) from error


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_words(kind: Any) -> bool:
    """A dictionary, whose values are checked with the others, or another layout of text."""
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string_view(kind))


def _check_footer(path: Path, where: str) -> None:
    """The last eight bytes are the size of the footer and a mark."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        end = file.read(8)
    footer = int.from_bytes(end[:4], "little")
    if len(end) == 8 and end.endswith(b"PAR1") and MAX_FOOTER < footer < size:
        raise DataError(
            f"The footer of {where} should have at most {MAX_FOOTER >> 20} MB. Found {footer >> 20} MB: too many "
            f"columns or row groups. Write only the columns that are used."
        )


def _check_sizes(where: str, about: Any, wanted: list[str]) -> None:
    if about.num_columns > MAX_COLUMNS:
        raise DataError(
            f"{where} should have at most {MAX_COLUMNS:,} columns. Found {about.num_columns:,}. "
            f"Write only the columns that are used."
        )
    if about.num_rows > MAX_ROWS:
        raise DataError(f"{where} should have at most {MAX_ROWS:,} rows. Found {about.num_rows:,}. {OTHERWISE}")
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    _check_unfolded(where, sum(one.total_uncompressed_size for one in columns if one.path_in_schema in wanted))


def _check_unfolded(where: str, size: int) -> None:
    if size > MAX_UNFOLDED:
        raise DataError(
            f"{where} should unfold to at most {MAX_UNFOLDED >> 30} GB. Found {size / (1 << 30):.1f} GB. {OTHERWISE}"
        )


def _read(where: str, file: Any, wanted: list[str]) -> Any:
    """Batch by batch, because a footer may say less than the file holds."""
    batches, unfolded = [], 0
    for batch in file.iter_batches(BATCH, columns=wanted):
        batch.validate(full=True)  # text is UTF-8, numbers of words exist
        unfolded += batch.nbytes
        _check_unfolded(where, unfolded)
        batches.append(batch)
    if not batches:
        raise DataError(f"{where} should hold interactions. Found columns and no rows.")
    return pa.Table.from_batches(batches).select(wanted)
