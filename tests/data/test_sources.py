from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedrecgel.data.columns import Columns
from fedrecgel.data.load import load
from fedrecgel.data.sources import SOURCES
from fedrecgel.errors import DataError

PUBLISHED = {  # the first rows of each raw file, in the format of its publisher
    "filmtrust": "1 1 2\n1 2 4\n2 1 3.5\n",
    "lastfm-2k": "userID\tartistID\ttagID\tday\tmonth\tyear\n2\t52\t13\t1\t4\t2009\n2\t52\t15\t1\t4\t2009\n"
    "3\t60\t13\t31\t12\t1956\n",
    "lastfm-2k-listens": "userID\tartistID\tweight\n2\t51\t13883\n2\t52\t11690\n3\t51\t4\n",
    "amazon-video": "AGZ8SM,B000GF,5.0,1198195200\r\nA9RNMO,B000GI,2.0,1281052800\r\nA3STFV,0001,5.0,1203897600\r\n",
    "qb-article": "user_id,item_id,click,gender,age\n12,7,1,1,3\n11,7,1,0,2\n12,5,1,1,3\n",
    "movielens-100k": "196\t242\t3\t881250949\n186\t302\t3\t891717742\n22\t377\t1\t878887116\n",
    "movielens-1m": "1::1193::5::978300760\n1::661::3::978302109\n2::1357::4::978298709\n",
}
EXPECTED = {
    "filmtrust": ([1, 1, 2], [1, 2, 1], None, [2, 4, 3.5]),
    "lastfm-2k": ([2, 2, 3], [52, 52, 60], [20090401, 20090401, 19561231], None),
    "lastfm-2k-listens": ([2, 2, 3], [51, 52, 51], None, [13883, 11690, 4]),
    "amazon-video": (
        ["AGZ8SM", "A9RNMO", "A3STFV"],
        ["B000GF", "B000GI", "0001"],
        [1198195200, 1281052800, 1203897600],
        [5, 2, 5],
    ),
    "qb-article": ([12, 11, 12], [7, 7, 5], [0, 1, 2], None),
    "movielens-100k": ([196, 186, 22], [242, 302, 377], [881250949, 891717742, 878887116], [3, 3, 1]),
    "movielens-1m": ([1, 1, 2], [1193, 661, 1357], [978300760, 978302109, 978298709], [5, 3, 4]),
}


def as_lists(columns: Columns) -> tuple[object, ...]:
    numbers = [None if column is None else column.tolist() for column in (columns.times, columns.ratings)]
    return columns.users.to_pylist(), columns.items.to_pylist(), *numbers


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / SOURCES[name].file
    path.write_bytes(PUBLISHED[name].encode())
    assert as_lists(SOURCES[name].parse(path)) == EXPECTED[name]


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(
    "spoil",
    [lambda text: text + "1\n", lambda text: re.sub(r"\d", "x", text), lambda _: ""],
    ids=["ragged", "no numbers", "empty"],
)
def test_other_formats_are_refused(tmp_path: Path, name: str, spoil: Callable[[str], str]) -> None:
    path = tmp_path / SOURCES[name].file
    path.write_bytes(spoil(PUBLISHED[name]).encode())
    with pytest.raises(DataError, match=re.escape(str(path))):
        SOURCES[name].parse(path)


def test_every_file_is_pinned_but_one_that_nobody_here_may_pass_on() -> None:
    """QB-article is handed out for a licence form only: the program never downloads it, and its counts are checked."""
    assert [name for name, source in SOURCES.items() if source.sha256 is None] == ["qb-article"]
    assert SOURCES["qb-article"].url is None


def test_registry_is_consistent() -> None:
    for name, source in SOURCES.items():
        assert source.name == name
        assert source.obtain
        assert source.about.endswith(".")
        assert source.sha256 is None or re.fullmatch("[0-9a-f]{64}", source.sha256)
        assert (source.member is None) == (source.url is None)


@pytest.mark.parametrize("name", ["filmtrust", "lastfm-2k", "lastfm-2k-distinct", "lastfm-2k-listens", "amazon-video"])
def test_published_statistics(raw_data: Path, name: str) -> None:
    data = load(name, data_dir=raw_data)
    assert (data.n_users, data.n_items, len(data)) == SOURCES[name].expected
    assert data.sha256 == SOURCES[name].sha256
    assert np.bincount(data.users).min() >= 5
    assert (data.times is None) == (name in ("filmtrust", "lastfm-2k-listens"))


def test_distinct_keeps_the_latest_tag(raw_data: Path) -> None:
    every, distinct = load("lastfm-2k", data_dir=raw_data), load("lastfm-2k-distinct", data_dir=raw_data)
    latest: dict[tuple[object, object], int] = {}
    assert every.times is not None
    assert distinct.times is not None
    for user, item, time in zip(every.users, every.items, every.times, strict=True):
        pair = (every.user_ids[user], every.item_ids[item])
        latest[pair] = max(latest.get(pair, 0), int(time))
    for user, item, time in zip(distinct.users, distinct.items, distinct.times, strict=True):
        assert latest[distinct.user_ids[user], distinct.item_ids[item]] == time
