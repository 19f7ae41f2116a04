from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fedrecgel.data.audit import Audit, audit
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.load import load


def make(rows: list[tuple[int, int, int]], timed: bool = True, **options: Any) -> Audit:
    frame: dict[str, list[int]] = {"user": [row[0] for row in rows], "item": [row[1] for row in rows]}
    if timed:
        frame["time"] = [row[2] for row in rows]
    return audit(Interactions.from_frame(frame, min_interactions=2).split(candidates=2, **options))


BACKGROUND = [(8 + item // 10, item, item) for item in range(20)]
"""Two users who share no item; 9 and 19 are their latest."""


def mentions(found: Audit, words: str) -> bool:
    return any(words in warning for warning in found.warnings)


def test_counts_by_hand() -> None:
    found = make(
        [
            *BACKGROUND,  # no one else has item 19
            *[(1, 3, 1), (1, 4, 2), (1, 3, 5)],  # item 3 twice: held out and in training
            *[(2, 5, 1), (2, 6, 7), (2, 7, 7)],  # two at the latest time
            *[(3, 8, 1), (3, 9, 7), (3, 9, 7)],  # the same item twice at the latest time
            (4, 1, 1),  # dropped
        ]
    )
    assert found.duplicate_pairs == 2
    assert found.dropped_users == 1
    assert found.heldout_in_train == 2 / 5
    assert found.heldout_unseen == 1 / 5
    assert found.tied_latest == 2 / 5
    assert mentions(found, "For 40% of users the held-out item is also among their training rows")
    assert mentions(found, "2 user-item pairs occur more than once (2 of 29 rows are repeats)")
    assert mentions(found, "20% of users have several items at their latest time")
    assert mentions(found, "For 20% of users no one trains on the held-out item")
    assert mentions(found, "1 users (17%) have fewer than 2 interactions")
    assert not mentions(found, "There are no timestamps")


def test_no_timestamps() -> None:
    rows = [*BACKGROUND, *[(1, item, 0) for item in range(5)]]
    found = make(rows, timed=False)
    assert found.tied_latest == 0
    assert mentions(found, "There are no timestamps, so a random row of each user is held out")
    assert mentions(make(rows, timed=False, untimed="file-order"), "the last row")


def test_small_catalogue_and_popular_head() -> None:
    rows = [(user, item, item) for user in range(30) for item in (0, 100 + user)]
    found = make(rows)
    assert mentions(found, "The most popular 1% of items hold 50% of interactions")
    assert not mentions(found, "catalogue")
    small = Interactions.from_frame({"user": [0, 0, 1, 1], "item": [0, 1, 2, 3]}, min_interactions=2)
    assert mentions(audit(small.split(candidates=2)), "The catalogue has only 4 items")


def test_demo_has_nothing_to_warn_about() -> None:
    assert audit(load("demo").split()).warnings == []


def test_keys_of_the_interface() -> None:
    assert [field.name for field in fields(Audit)] == [
        *["split", "tested_users", "tested_items"],
        *["duplicate_pairs", "dropped_users", "heldout_in_train", "heldout_unseen", "tied_latest", "warnings"],
    ]


def test_lastfm_repeats(raw_data: Path) -> None:
    found = audit(load("lastfm-2k", data_dir=raw_data).split(ties="lowest-item"))
    assert found.heldout_in_train == pytest.approx(0.624, abs=5e-4)
    assert found.warnings[0].startswith("For 62% of users the held-out item is also among their training rows")
    assert "lastfm-2k-distinct" in found.warnings[0]
    assert mentions(found, "41% of users have several items at their latest time")
    distinct = audit(load("lastfm-2k-distinct", data_dir=raw_data).split())
    assert distinct.duplicate_pairs == 0
    assert distinct.heldout_in_train == 0


def test_filmtrust(raw_data: Path) -> None:
    found = audit(load("filmtrust", data_dir=raw_data).split())
    assert (found.duplicate_pairs, found.dropped_users) == (3, 281)
    assert mentions(found, "hold 42% of interactions")
