"""The whole catalogue may be ranked for a sample of users, which is said wherever the number stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import TINY, random_split

import fedrecgel
from fedrecgel.cli.table import result_table
from fedrecgel.runs import measuring

SPLIT = random_split(n_users=30, n_items=200)


def test_a_sample_is_stated_and_the_same_for_popularity(tmp_path: Path) -> None:
    everybody = fedrecgel.train("fedncf", SPLIT, rounds=2, **TINY)
    some = fedrecgel.train("fedncf", SPLIT, rounds=2, **TINY, evaluation={"full_users": 7})
    again = fedrecgel.train("fedncf", SPLIT, rounds=2, **TINY, evaluation={"full_users": 7})
    assert "metrics_full_users" not in everybody.summary
    assert some.summary["metrics_full_users"] == 7
    assert some.metrics == everybody.metrics, "candidates are ranked for all"
    assert some.metrics_full == again.metrics_full
    hits = 7 * some.metrics_full["HR@10"]
    assert hits == pytest.approx(round(hits), abs=1e-6), "a mean over seven users"
    assert some.summary["reference_full"]["popularity"] != everybody.summary["reference_full"]["popularity"]
    assert "whole catalogue, 7 users drawn at random" in result_table(some)
    some.save(tmp_path / "run")
    assert fedrecgel.open(tmp_path / "run").summary["metrics_full_users"] == 7


def test_where_all_would_take_hours_a_sample_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FULL_SCORES", 200 * 5)
    assert fedrecgel.train("popularity", SPLIT, rounds=1).summary["metrics_full_users"] == 5
    whole = fedrecgel.train("popularity", SPLIT, rounds=1, evaluation={"full_users": 1000})
    assert "metrics_full_users" not in whole.summary
