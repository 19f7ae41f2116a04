from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedrecgel.data.columns import ColumnNames, choose_columns, pick_columns
from fedrecgel.data.interactions import Interactions
from fedrecgel.errors import DataError


def table(**columns: Any) -> Any:
    return pa.table({"user": [1, 1, 2], "item": [5, 6, 5]} | columns)


@pytest.mark.parametrize(
    "names",
    [
        ["user", "item", "timestamp", "rating"],
        ["userID", "itemId", "time", "Score"],
        [" uid ", "iid", "date", "weight"],
        ["user_id:token", "item_id:token", "timestamp:float", "rating:float"],
        ["userId", "movieId", "ts", "stars"],
        ["customer_id", "product_id", "created_at", "overall"],
        ["User-ID", "ISBN", "unix time", "Book-Rating"],
    ],
)
def test_names_people_use(names: list[str]) -> None:
    chosen = choose_columns(["comment", *names])
    assert list(chosen.values()) == [*names, None]


def test_optional_columns() -> None:
    optional = {"timestamp": None, "rating": None, "title": None}
    assert choose_columns(["item", "user"]) == {"user": "user", "item": "item", **optional}


def test_a_less_usual_name_counts_only_where_no_usual_one_is() -> None:
    assert choose_columns(["product_id", "item", "user", "customer_id"])["item"] == "item"
    with pytest.raises(DataError, match="several columns that could be the item: asin, parent_asin"):
        choose_columns(["asin", "parent_asin", "user"])
    assert choose_columns(["user", "item", "movie_title", "title", "item_title"])["title"] == "title"


@pytest.mark.parametrize(
    ("found", "names", "words"),
    [
        (["user"], ColumnNames(), r"should have a column 'item'\. Found: user\. Is the first line a header"),
        (["user;item"], ColumnNames(), r"are columns parted by commas"),
        (
            ["who", "item"],
            ColumnNames(),
            r"Found: who, item\. Name it with --set data\.user",
        ),
        (
            ["user", "item"],
            ColumnNames(user="item"),
            r"data\.item should be two columns.*Found 'item' for both",
        ),
        (["user", "item"], ColumnNames(timestamp="user"), r"data\.user and data\.timestamp should be two columns"),
        ([], ColumnNames(), "Found: no columns"),
        (["user", "user_id", "item"], ColumnNames(), "several columns that could be the user: user, user_id"),
        (["user", "item"], ColumnNames(rating="stars"), r"the column 'stars' \(data\.rating\)"),
    ],
)
def test_missing_and_ambiguous(found: list[str], names: ColumnNames, words: str) -> None:
    with pytest.raises(DataError, match=words):
        choose_columns(found, names)


def test_a_column_named_by_hand_must_be_one() -> None:
    with pytest.raises(DataError, match=r"one column 'who' \(data\.user\)\. Found 2"):
        choose_columns(["who", "item", "who"], ColumnNames(user="who"))


def test_many_columns_are_not_all_listed() -> None:
    with pytest.raises(DataError, match=r"c19, … \(500 in all\)") as error:
        choose_columns([f"c{k}" for k in range(500)])
    assert len(str(error.value)) < 300


def test_naming_a_column_settles_ambiguity() -> None:
    assert choose_columns(["user", "user_id", "item"], ColumnNames(user="user_id"))["user"] == "user_id"


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array([3, 1, 2], dtype=np.uint8), [3, 1, 2]),
        ([3.0, 1.0, 2.0], [3, 1, 2]),
        (["b", "a", "c"], ["b", "a", "c"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
        (pa.array(["b", "a", "b"], pa.string_view()), ["b", "a", "b"]),
    ],
)
def test_ids(ids: Any, expected: list[Any]) -> None:
    assert pick_columns(table(user=ids)).users.to_pylist() == expected


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, None, 2], "no missing values. Found 1 of 3"),
        ([1.0, float("nan"), 2.0], "no missing values. Found 1 of 3"),
        (["a", "", "b"], "Found empty ids"),
        ([0.5, 1.0, 2.0], "Found fractions"),
        ([float("inf"), 1.0, 2.0], "Found fractions"),
        ([2.0**53, 1.0, 2.0], "does not tell neighbours apart"),
        (np.array([2**11, 1, 2], dtype=np.float16), "does not tell neighbours apart"),
        ([True, False, True], "integers or text. Found bool"),
        ([[1], [2], [3]], "integers or text. Found list"),
    ],
)
def test_bad_ids(ids: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        pick_columns(table(user=ids))


@pytest.mark.parametrize(
    "times",
    [
        [20, 10, 30],
        [0.2, 0.1, 0.3],
        ["2020-01-02", "2020-01-01", "2020-01-03"],
        ["2020-01-01 00:00:02", "2020-01-01 00:00:01", "2020-01-01 00:00:03"],
        [datetime.date(2020, 1, day) for day in (2, 1, 3)],
        [datetime.datetime(2020, 1, day, tzinfo=datetime.UTC) for day in (2, 1, 3)],
        [datetime.time(day) for day in (2, 1, 3)],
        pa.array([2, 1, 3], pa.time32("s")),
        pa.array([2, 1, 3], pa.time64("ns")),
        pa.array([2, 1, 3], pa.duration("ms")),
        pa.array([2, 1, 2**64 - 1], pa.uint64()),
        pa.array([2 - 2**63, 1 - 2**63, 3]),
        pa.array(["12", "7", "300"]).dictionary_encode(),
        pa.array([0.2, 0.1, 0.3]).dictionary_encode(),
    ],
)
def test_times_keep_their_order(times: Any) -> None:
    found = pick_columns(table(time=times)).times
    assert found is not None
    assert found.dtype == np.int64
    assert np.argsort(found).tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("role", "values", "words"),
    [
        ("time", [1, None, 2], "no missing values"),
        ("time", [1, -(2**63), 2], "no missing values. Found 1 of 3: the lowest 64-bit number stands for no time"),
        ("time", pa.array([1, -(2**63), 2], pa.timestamp("ns")), "stands for no time"),
        ("time", np.array([1, "NaT", 2], dtype="datetime64[ns]"), "no missing values"),
        ("time", [1.0, float("-inf"), 2.0], "finite numbers. Found infinity"),
        ("time", pa.array([1, 2**31 - 1, 2], pa.date32()), "numbers or ISO dates"),
        ("time", ["soon", "now", "then"], "numbers or ISO dates. Found soon"),
        ("time", [True, False, True], "numbers or dates. Found bool"),
        ("rating", [1.0, float("nan"), 2.0], "no missing values"),
        ("rating", ["good", "bad", "good"], "should hold numbers. Found"),
    ],
)
def test_bad_times_and_ratings(role: str, values: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        pick_columns(table(**{role: values}))


def test_no_rows() -> None:
    with pytest.raises(DataError, match="a header and no rows"):
        pick_columns(table().slice(0, 0))


@pytest.mark.parametrize("times", [["2020-01-02T00:00:00Z", "2020-01-01T00:00:00Z"], ["1600000002", "1600000001"]])
def test_times_written_as_text(times: list[str]) -> None:
    found = pick_columns(pa.table({"user": [1, 1], "item": [1, 2], "timestamp": times})).times
    assert found is not None
    assert found[0] > found[1]


def test_hashes_beyond_signed_integers_are_names() -> None:
    found = pick_columns(pa.table({"user": pa.array([2**64 - 1, 1], pa.uint64()), "item": [1, 2]}))
    assert found.users.to_pylist() == [str(2**64 - 1), "1"]


def test_a_dictionary_may_hold_a_word_twice_or_for_nothing() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1, 0]), pa.array(["b", "a", "b", "unused"]))
    data = Interactions.from_frame({"user": words, "item": [1, 2, 3, 4]}, min_interactions=1)
    assert data.user_ids == ["a", "b"]
    assert data.users.tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize("as_words", [False, True])
def test_titles_are_those_of_the_first_row_that_has_one(as_words: bool) -> None:
    titles = pa.array([None, " The\nMatrix ", "Matrix, the", "", None, "Ümit"])
    frame = {"user": [1] * 6, "item": ["m", "m", "m", "x", "x", "u"]}
    frame["title"] = titles.dictionary_encode() if as_words else titles
    data = Interactions.from_frame(frame, min_interactions=1)
    assert (data.item_ids, data.item_titles) == (["m", "u", "x"], ["The Matrix", "Ümit", "x"])
    assert Interactions.from_frame({"user": [1], "item": [2]}, min_interactions=1).item_titles is None


def test_titles_follow_the_items_that_remain() -> None:
    frame = {"user": [1, 1, 2], "item": [5, 6, 7], "name": ["five", "six", "seven"]}
    data = Interactions.from_frame(frame, title="name", min_interactions=2)
    assert (data.item_ids, data.item_titles) == ([5, 6], ["five", "six"])
    with pytest.raises(DataError, match=r"should hold text\. Found list"):
        Interactions.from_frame({**frame, "name": [[1], [2], [3]]}, title="name")
