from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedrecgel.data import demo
from fedrecgel.data.load import load
from fedrecgel.data.sources import SOURCES
from fedrecgel.errors import ConfigError, DataError


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """User 1 has six rows (one pair twice), user 2 five, user 3 one; odd ratings are low."""
    rows = [(1, item, 1 + item % 2 * 4, 10 + item) for item in (1, 2, 3, 4, 5, 5)]
    rows += [(2, item, 5, 10 + item) for item in (1, 2, 3, 4, 6)] + [(3, 9, 5, 1)]
    path = tmp_path / "mine.csv"
    path.write_text("userId,itemId,rating,time\n" + "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows))
    return path


def write_qb_article(folder: Path, n_users: int) -> Path:
    path = folder / "qb-article" / "QB-article.csv"
    path.parent.mkdir()
    rows = [f"{user},{item}" for user in range(n_users) for item in range(5)]
    path.write_text("user_id,item_id\n" + "\n".join(rows))
    return path


def test_own_file(own: Path) -> None:
    data = load(own)
    assert (data.name, data.n_users, data.n_items, len(data), data.dropped_users) == ("mine", 2, 6, 11, 1)
    assert data.user_ids == [1, 2]
    assert data.source == str(own)
    assert data.sha256 is not None
    assert load(str(own)).user_ids == [1, 2]


def test_options_of_own_files(own: Path) -> None:
    assert len(load(own, distinct=True)) == 10
    assert load(own, min_interactions=1).n_users == 3
    liked = load(own, min_rating=3, min_interactions=1)
    assert np.bincount(liked.users).tolist() == [4, 5, 1]


def test_columns_given_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("who\twhat\tsince\n" + "".join(f"a\tfilm {k}\t2020-01-0{k}\n" for k in range(1, 7)))
    data = load(path, user="who", item="what", timestamp="since")
    assert data.user_ids == ["a"]
    assert data.times is not None
    assert (np.diff(data.times) > 0).all()


def test_a_rating_column_with_gaps_is_no_matter_unless_used(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,item,rating\n" + "1,1,\n1,2,3\n" * 3)
    assert len(load(path)) == 6
    with pytest.raises(DataError, match=r"'rating'.* no missing values"):
        load(path, min_rating=2)


def test_one_interaction_users(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,item\n1,1\n2,1\n3,1\n")
    with pytest.raises(DataError, match=r"at least 5 interactions\. Found 3 users, the largest with 1"):
        load(path)


def test_unknown_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"Unknown data set 'filmtrus'\. Did you mean 'filmtrust'"):
        load("filmtrus")
    for missing in ("mine.csv", "folder/mine", "~/nothing-of-this-name", str(tmp_path / "filmtrust.csv")):
        with pytest.raises(DataError, match="There is no file"):
            load(missing)
    with pytest.raises(DataError, match="There is no file"):
        load(Path("filmtrust"))
    (tmp_path / "mine").write_text("user,item\n1,2\n")
    with pytest.raises(DataError, match="no suffix"):
        load("mine")


def test_columns_of_named_data_sets_are_fixed() -> None:
    with pytest.raises(ConfigError, match="'filmtrust' is a named data set"):
        load("filmtrust", user="who")


def test_demo() -> None:
    data = load("demo")
    assert (data.n_users, data.n_items, len(data)) == demo.STATISTICS
    assert data.sha256 == demo.SHA256
    assert data.licence == "Apache-2.0"


def test_statistics_name_the_numbers_that_are_off(tmp_path: Path) -> None:
    path = write_qb_article(tmp_path, n_users=1_508)
    with pytest.raises(DataError) as error:
        load("qb-article", data_dir=tmp_path)
    assert str(error.value).startswith(
        "Dataset 'qb-article' has 1,508 users, 5 items, 7,540 interactions after parsing, "
        "expected 24,516, 7,355, 348,736 with min_interactions=5. "
    )
    assert str(path) in str(error.value)


def test_statistics_name_only_the_number_that_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_qb_article(tmp_path, n_users=4)
    right = SOURCES["qb-article"].expected._replace(items=5, interactions=20)
    monkeypatch.setitem(SOURCES, "qb-article", replace(SOURCES["qb-article"], expected=right))
    with pytest.raises(DataError, match="has 4 users after parsing, expected 24,516 with min_interactions=5"):
        load("qb-article", data_dir=tmp_path)


def test_statistics_hold_for_the_default_cut_only(tmp_path: Path) -> None:
    write_qb_article(tmp_path, n_users=4)
    data = load("qb-article", data_dir=tmp_path, min_interactions=2)
    assert (data.n_users, data.n_items, len(data)) == (4, 5, 20)
    assert data.licence == "CC BY-NC 4.0"
    assert data.times is not None
    assert data.times.tolist() == list(range(20))
    with pytest.raises(DataError, match="needs a rating column"):
        load("qb-article", data_dir=tmp_path, min_rating=3)


def test_min_rating_of_a_named_data_set(raw_data: Path) -> None:
    every, liked = load("filmtrust", data_dir=raw_data), load("filmtrust", data_dir=raw_data, min_rating=3)
    assert 0 < len(liked) < len(every)
