from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.data.interactions import Interactions
from fedrecgel.data.load import load
from fedrecgel.errors import DataError

pd = pytest.importorskip("pandas")  # ships no type information

FRAME = {"user": ["b", "a", "a", "b", "c"], "item": [30, 10, 20, 10, 10], "time": [5, 1, 2, 3, 4]}


def relation(frame: Any) -> Any:
    """The same as DuckDB hands a query over."""
    table = pa.table(frame)
    return duckdb.connect().from_arrow(table)


@pytest.mark.parametrize("kind", [dict, pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table, relation])
@pytest.mark.parametrize("door", [Interactions.from_frame, load])
def test_any_data_frame(kind: Any, door: Any) -> None:
    data = door(kind(FRAME), min_interactions=2)
    assert (data.user_ids, data.item_ids) == (["a", "b"], [10, 20, 30])
    assert data.users.tolist() == [1, 0, 0, 1]
    assert data.items.tolist() == [2, 0, 1, 0]
    assert data.times is not None
    assert data.times.tolist() == [5, 1, 2, 3]
    assert data.dropped_users == 1
    assert (data.n_users, data.n_items, len(data)) == (2, 3, 4)


@pytest.mark.parametrize(
    "frame", [42, "text", {"user": [1], "item": [1, 2]}, None, pl.LazyFrame({"a": [1]}).select("b")]
)
def test_no_data_frame(frame: Any) -> None:
    with pytest.raises(DataError, match="A data frame should be"):
        Interactions.from_frame(frame)


def test_missing_ids_in_pandas() -> None:
    frame = pd.DataFrame({"user": [1, None, 2], "item": [1, 2, 3]})
    with pytest.raises(DataError, match="no missing values"):
        Interactions.from_frame(frame)


rows = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 8), st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=60
)


@settings(max_examples=150, deadline=None)
@given(rows, st.integers(1, 4), st.none() | st.integers(1, 5), st.booleans(), st.randoms(use_true_random=False))
def test_against_a_plain_loop(
    rows: list[tuple[int, int, int, int]], minimum: int, min_rating: int | None, distinct: bool, order: Any
) -> None:
    def load(content: list[tuple[int, int, int, int]]) -> Interactions:
        names = ("user", "item", "time", "rating")
        frame = {name: [row[k] for row in content] for k, name in enumerate(names)}
        return Interactions.from_frame(frame, min_interactions=minimum, min_rating=min_rating, distinct=distinct)

    kept = [row for row in rows if min_rating is None or row[3] >= min_rating]
    if distinct:
        latest: dict[tuple[int, int], tuple[int, int]] = {}
        for at, row in enumerate(kept):
            latest[row[:2]] = max(latest.get(row[:2], (-1, -1)), (row[2], at))
        kept = [kept[at] for at in sorted(at for _, at in latest.values())]
    users = [row[0] for row in kept]
    kept = [row for row in kept if users.count(row[0]) >= minimum]
    if not kept:
        with pytest.raises(DataError, match="at least"):
            load(rows)
        return
    data = load(rows)
    assert data.times is not None
    found = [
        (data.user_ids[user], data.item_ids[item], time)
        for user, item, time in zip(data.users, data.items, data.times, strict=True)
    ]
    assert found == [row[:3] for row in kept]
    assert data.user_ids == sorted({row[0] for row in kept})
    assert data.item_ids == sorted({row[1] for row in kept})
    assert data.dropped_users == len({row[0] for row in rows}) - data.n_users
    shuffled = rows.copy()
    order.shuffle(shuffled)
    again = load(shuffled)
    assert (again.user_ids, again.item_ids) == (data.user_ids, data.item_ids)
    assert np.bincount(again.users).tolist() == np.bincount(data.users).tolist()
