from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.builders import TINY, interactions_of, random_split

import fedrecgel
from fedrecgel.cli.table import result_table
from fedrecgel.errors import ConfigError
from fedrecgel.runs.verdict import NOTHING_MEASURED


def checkerboard() -> fedrecgel.Split:
    users, items = np.meshgrid(np.arange(40), np.arange(120), indexing="ij")
    shown = ((users + items) % 2 == 0) & (np.random.default_rng(0).random(users.shape) < 0.6)
    return fedrecgel.Interactions.from_frame({"user": users[shown], "item": items[shown]}).split(candidates=20)


def test_a_run_that_is_no_better_than_popularity_says_so_and_what_to_do() -> None:
    result = fedrecgel.train("fedncf", random_split(n_users=20), rounds=1, **TINY)
    (said,) = [text for text in result.summary["warnings"] if "popularity" in text]
    assert said.startswith("Not significantly above popularity on its 20 users: NDCG@10 ")
    assert "`fedrecgel tune`, another method (`fedrecgel methods`), or `fedrecgel data audit tiny`" in said


def test_a_better_one_does_not_and_a_withheld_row_is_named() -> None:
    better = fedrecgel.train("ease", checkerboard(), reg=1.0)
    assert not [text for text in better.summary["warnings"] if "popularity" in text]
    withheld = fedrecgel.train("fedncf", random_split(), rounds=1, evaluation={"reference": "off"}, **TINY)
    assert [text for text in withheld.summary["warnings"] if "popularity row is withheld" in text]


def test_held_out_items_among_training_rows_are_told() -> None:
    rows = [(user, item, item) for user in range(10) for item in (user, user + 1, user + 2, user + 3, user + 4)]
    clean = fedrecgel.train("popularity", interactions_of(rows, 130).split())
    assert not clean.summary["warnings"]
    leaking = fedrecgel.train("popularity", interactions_of([*rows, (0, 0, 9)], 130).split())
    assert leaking.summary["warnings"] == [
        "For 10% of users the held-out item is also among their training rows: putting own items first looks good "
        "here. See `fedrecgel data audit tiny`."
    ]


def test_a_final_model_trains_on_everything_and_measures_nothing(tmp_path: Path) -> None:
    split = random_split(n_users=8, n_items=120)
    result = fedrecgel.train("fedncf", split.interactions, rounds=2, final=True, **TINY)
    assert (result.metrics, result.metrics_full, result.reference) == ({}, {}, {})
    assert result.summary["warnings"] == [NOTHING_MEASURED]
    assert result.summary["protocol"]["split"] == "none: all interactions"
    assert int(result.train.counts.sum()) == len(split.interactions)
    data = split.interactions
    has = {data.item_ids[item] for item in data.items[data.users == 2]}
    assert {best.item for best in result.recommend("u2", 1000)} == set(data.item_ids) - has
    result.save(tmp_path / "run")
    assert fedrecgel.open(tmp_path / "run").recommend("u2", 5) == result.recommend("u2", 5)
    assert "a final model" in result_table(result)


def test_a_final_model_cannot_tell_when_to_stop() -> None:
    with pytest.raises(ConfigError, match=r"cannot tell when to stop\. Give rounds="):
        fedrecgel.train("fedncf", random_split(), final=True, **TINY)
    with pytest.raises(ConfigError, match="holds nothing out to select a round with"):
        fedrecgel.train("fedncf", random_split(), rounds=1, final=True, evaluation={"selection": "test"}, **TINY)
    assert fedrecgel.train("popularity", random_split(), final=True).summary["rounds"] == 1
