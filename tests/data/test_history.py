from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import interactions_of, random_interactions

from fedrecgel.data.history import History
from fedrecgel.data.split import leave_one_out

DATA = random_interactions(12, 60)
SPLIT = leave_one_out(DATA, candidates=20)
users = st.lists(st.integers(0, 11), min_size=1, max_size=6)


def rows_of(user: int) -> list[tuple[int, int]]:
    """A user's training rows as (time, item), without the one that is held out."""
    assert DATA.times is not None
    rows = [(int(DATA.times[row]), int(DATA.items[row])) for row in np.flatnonzero(DATA.users == user)]
    latest = max(time for time, _ in rows)
    rows.remove((latest, min(item for time, item in rows if time == latest)))
    return rows


@settings(max_examples=30, deadline=None)
@given(users)
def test_items_counts_and_owners(ids: list[int]) -> None:
    history = History(SPLIT.train, torch.tensor(ids))
    for client, user in enumerate(ids):
        items = [item for _, item in rows_of(user)]
        mine = history.owners == client
        assert history.items[mine].tolist() == sorted(set(items))
        assert history.counts[mine].tolist() == [items.count(item) for item in sorted(set(items))]
    at, mask = history.pad()
    assert torch.equal(at[mask], history.items)
    assert mask.sum(1).tolist() == history.ptr.diff().tolist()


@settings(max_examples=30, deadline=None)
@given(users)
def test_recency_counts_back_from_the_latest_item(ids: list[int]) -> None:
    history = History(SPLIT.train, torch.tensor(ids))
    assert history.recency is not None
    for client, user in enumerate(ids):
        mine = history.owners == client
        order = history.items[mine][history.recency[mine].argsort()].tolist()
        last = {item: max(time for time, other in rows_of(user) if other == item) for item in order}
        assert sorted(history.recency[mine].tolist()) == list(range(len(order)))
        assert [last[item] for item in order] == sorted(last.values(), reverse=True)


def test_data_without_an_order_have_no_recency() -> None:
    rows = [(user, item, 0) for user in range(3) for item in range(user, user + 5)]
    untimed = interactions_of(rows, 200, timed=False)
    assert History(leave_one_out(untimed).train, torch.tensor([0])).recency is None
    in_file_order = leave_one_out(untimed, untimed="file-order")
    recency = History(in_file_order.train, torch.tensor([1])).recency
    assert recency is not None
    assert recency.tolist() == [3, 2, 1, 0]


def test_nobody_has_an_empty_history() -> None:
    history = History(SPLIT.train, torch.zeros(0, dtype=torch.int64))
    assert not len(history.items)
    assert history.pad()[0].shape == (0, 0)
