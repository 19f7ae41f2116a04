from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import enough_rounds, random_split, tiny

import fedrecgel
from fedrecgel.engine.local import LocalSettings
from fedrecgel.errors import ConfigError, StorageError
from fedrecgel.evaluation.top_items import top
from fedrecgel.methods import METHODS
from fedrecgel.runs import everyone
from fedrecgel.runs.result import Result

N_USERS, N_ITEMS = 23, 120
SPLIT = random_split(n_users=N_USERS, n_items=N_ITEMS)
TRAINED = {name: fedrecgel.train(name, SPLIT, rounds=2, **tiny(name)) for name in ("fedrecgel", "popularity")}

each_method = pytest.mark.parametrize("name", TRAINED)


def in_blocks_of(result: Result, users: int) -> Result:
    local = LocalSettings(chunk_scores=users * N_ITEMS)
    return replace(result, config=replace(result.config, local=local))


def one_by_one(result: Result, k: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for user in [*result.user_ids]:
        found = enumerate(result.recommend(user, k), 1)
        rows += [{"user": user, "rank": rank, "item": best.item, "score": best.score} for rank, best in found]
    return rows


def same(rows: list[dict[str, Any]], expected: list[dict[str, Any]], name: str) -> bool:
    """Whether these are the same lists; items whose scores differ by rounding alone may change places."""
    own = {(row["user"], row["item"]): row["score"] for row in one_by_one(TRAINED[name], N_ITEMS)}
    scores = [row["score"] for row in rows]
    for known in ([row["score"] for row in expected], [own[row["user"], row["item"]] for row in rows]):
        assert scores == pytest.approx(known, rel=1e-5, abs=1e-7)  # a product of several users rounds otherwise
    return [(row["user"], row["rank"]) for row in rows] == [(row["user"], row["rank"]) for row in expected]


@each_method
@settings(max_examples=15, deadline=None)
@given(block=st.integers(1, N_USERS + 3), k=st.sampled_from([1, 7, 10, N_ITEMS, 1000]), gather=st.integers(1, 500))
def test_all_users_together_equal_one_by_one(
    name: str, block: int, k: int, gather: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    result = in_blocks_of(TRAINED[name], block)
    path = tmp_path_factory.mktemp("all") / "all.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(everyone, "ROWS_AT_ONCE", gather)
        n_rows = result.recommend_all(path, k)
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == ["user", "rank", "item", "score"]
    assert n_rows == table.num_rows
    assert len({(row["user"], row["item"]) for row in table.to_pylist()}) == n_rows
    assert same(table.to_pylist(), one_by_one(TRAINED[name], k), name)


@each_method
def test_csv_has_the_same_rows_and_replaces_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "out" / "all.csv"
    path.parent.mkdir()
    path.write_text("old")
    TRAINED[name].recommend_all(path, 3)
    table = pyarrow.csv.read_csv(path)
    assert same(table.to_pylist(), one_by_one(TRAINED[name], 3), name)
    assert [entry.name for entry in path.parent.iterdir()] == ["all.csv"]


def test_reasons_of_all_users_equal_those_of_each(tmp_path: Path) -> None:
    result = fedrecgel.train("itemknn", SPLIT)
    table = everyone.Everyone(result, 3, because=True)
    for name in ("all.parquet", "all.csv"):
        everyone.write_tables(tmp_path / name, table.schema, map(table.table, table.parts))
    expected = [list(best.because) for user in result.user_ids for best in result.recommend(user, 3)]
    assert any(expected)
    assert pyarrow.parquet.read_table(tmp_path / "all.parquet")["because"].to_pylist() == expected
    texts = pyarrow.csv.read_csv(tmp_path / "all.csv")["because"].to_pylist()
    assert [str(text) for text in texts] == [", ".join(map(str, because)) for because in expected]


def test_equal_scores_come_in_the_order_of_items() -> None:
    result = TRAINED["popularity"]
    for user in [*result.user_ids][:5]:
        best = [(-entry.score, entry.item) for entry in result.recommend(user, 60)]
        assert best == sorted(best)
        assert len({score for score, _ in best}) < len(best)  # else this test shows nothing


def test_scores_of_all_users_never_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest, result = 0, in_blocks_of(TRAINED["fedrecgel"], 4)
    topk = torch.topk

    def watch(scores: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        nonlocal largest
        largest = max(largest, scores.numel())
        return topk(scores, *arguments, **options)

    monkeypatch.setattr(torch, "topk", watch)
    result.recommend_all(tmp_path / "all.parquet")
    assert largest == 4 * N_ITEMS < N_USERS * N_ITEMS


@pytest.mark.parametrize("name", METHODS)
def test_no_method_recommends_what_the_user_is_known_to_have(name: str) -> None:
    """Held-out items included, for everybody; all others are recommended."""
    split = random_split(n_users=8, n_items=120)
    result = fedrecgel.train(name, split, rounds=enough_rounds(name, 2), **tiny(name))
    users, data = [*result.user_ids], split.interactions
    for number, user in enumerate(users):
        has = {data.item_ids[item] for item in data.items[data.users == number]}
        assert {best.item for best in result.recommend(user, 1000)} == set(data.item_ids) - has


def test_the_best_by_a_plain_loop() -> None:
    """Equal scores, blocked items and numbers that are none, in every order."""
    generator = torch.Generator().manual_seed(0)
    for k, n, different, share in (
        (1, 12, 4, 0.5),
        (3, 12, 4, 0.5),
        (12, 12, 4, 0.5),
        (2, 700, 900, 0.5),
        (5, 700, 99, 1),
    ):
        scores = torch.randint(0, different, (20, n), generator=generator).double()
        scores[3, 4] = torch.nan
        blocked = torch.rand(20, n, generator=generator) < share
        own_rows, own_columns = blocked.nonzero(as_tuple=True)
        row, rank, column, value = top(scores, (own_rows, own_columns), None, k)
        plain = []
        for user in range(20):
            own = [(-float(scores[user, item]), item) for item in range(n) if not blocked[user, item]]
            own = sorted((float("inf") if score != score else score, item) for score, item in own)[:k]
            plain += [(user, place, item, -score) for place, (score, item) in enumerate(own)]
        assert list(zip(row.tolist(), rank.tolist(), column.tolist(), value.tolist(), strict=True)) == plain


def test_lists_decide_what_may_be_recommended(tmp_path: Path) -> None:
    result = TRAINED["fedrecgel"]
    allowed: list[int | str] = [100, 107, 133, 150, 151]
    everything = [best.item for best in result.recommend("u1", 1000)]
    among = [best.item for best in result.recommend("u1", among=allowed)]
    assert among == [item for item in everything if item in allowed]
    without = [best.item for best in result.recommend("u1", 1000, exclude=allowed)]
    assert without == [item for item in everything if item not in allowed]
    assert [best.item for best in result.recommend("u1", among=allowed, exclude=[107])] == [
        item for item in among if item != 107
    ]
    result.recommend_all(tmp_path / "all.parquet", 3, among=allowed, exclude=[107])
    found = pyarrow.parquet.read_table(tmp_path / "all.parquet").to_pylist()
    assert {row["item"] for row in found} <= {100, 133, 150, 151}
    assert [row["item"] for row in found if row["user"] == "u1"] == [item for item in among if item != 107][:3]
    with pytest.raises(ConfigError, match="Some items should be left to recommend"):
        result.recommend("u1", among=[107], exclude=[107])
    with pytest.raises(ConfigError, match=r"The list to choose among should name items .* knows none of item 1\."):
        result.recommend("u1", among=[1])
    with pytest.warns(UserWarning, match=r"does not know item 9: left out of the list to exclude\."):
        result.recommend("u1", exclude=[9, 107])


def test_titles_stand_beside_items_and_stay_with_the_run(tmp_path: Path) -> None:
    titles = tmp_path / "titles.csv"
    titles.write_text("itemId,Title\n" + "".join(f"{100 + n},Película {n}\n" for n in range(130)), encoding="utf-8")
    result = TRAINED["fedrecgel"].with_titles(titles)
    best = result.recommend("u1", 1)[0]
    assert best.title == f"Película {int(best.item) - 100}"
    result.save(tmp_path / "run")
    opened = fedrecgel.open(tmp_path / "run")
    assert opened.recommend("u1", 1)[0] == best
    opened.recommend_all(tmp_path / "all.csv", 1)
    assert (tmp_path / "all.csv").read_text(encoding="utf-8").splitlines()[0] == '"user","rank","item","title","score"'
    assert f"Película {int(best.item) - 100}" in (tmp_path / "all.csv").read_text(encoding="utf-8")


def test_a_run_of_an_earlier_version_says_that_held_out_items_may_come() -> None:
    with pytest.warns(UserWarning, match="did not keep held-out items"):
        replace(TRAINED["fedrecgel"], observed=None).recommend("u1")


def test_ids_keep_their_type(tmp_path: Path) -> None:
    result = replace(TRAINED["fedrecgel"], user_ids=list(range(N_USERS)))
    result.recommend_all(tmp_path / "all.parquet", 1)
    first = pyarrow.parquet.read_table(tmp_path / "all.parquet").to_pylist()[0]
    assert (type(first["user"]), type(first["item"])) == (int, int)


@pytest.mark.parametrize(
    ("name", "k", "message"),
    [
        ("all.xlsx", 10, r"-o should end with \.parquet or \.csv"),
        ("all.csv", 0, "k should be at least 1"),
        ("d.csv", 1, "a folder"),
    ],
)
def test_wrong_input_writes_nothing(name: str, k: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(ConfigError, match=message):
        TRAINED["fedrecgel"].recommend_all(tmp_path / name, k)
    assert [entry.name for entry in tmp_path.iterdir()] == ["d.csv"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "all.csv"
    path.write_text("old")

    def full(*arguments: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setitem(everyone.WRITERS, ".csv", full)
    with pytest.raises(StorageError, match="No space left"):
        TRAINED["fedrecgel"].recommend_all(path)
    assert path.read_text() == "old"
