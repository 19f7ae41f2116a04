from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.data import synthetic
from fedrecgel.data.load import DataSettings, load_data
from fedrecgel.errors import ConfigError, DataError


@settings(max_examples=20, deadline=None)
@given(st.integers(20, 300), st.integers(60, 400), st.integers(6, 9))
def test_exactly_the_size_asked_for(n_users: int, n_items: int, mean: int) -> None:
    n_interactions = max(n_items, mean * n_users)
    if n_interactions > int(synthetic.LARGEST_SHARE * n_items) * n_users // 2:
        return
    data = synthetic.generate(n_users, n_items, n_interactions)
    assert (data.n_users, data.n_items, len(data)) == (n_users, n_items, n_interactions)
    assert len(np.unique(data.users.astype(np.int64) * n_items + data.items)) == n_interactions, "a pair occurs twice"
    assert np.bincount(data.users).min() >= 5
    assert (np.bincount(data.items, minlength=n_items) > 0).all()


@pytest.mark.parametrize(("n_users", "n_items"), [(3, 10), (3, 1000), (1000, 10)])
def test_sizes_that_hold_no_data_set(n_users: int, n_items: int) -> None:
    with pytest.raises(DataError, match="take more of both"):
        synthetic.generate(n_users, n_items, 5 * n_users)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthetic.generate(300, 400, 4000)
    monkeypatch.setattr(synthetic, "BLOCK", 7)
    parts = synthetic.generate(300, 400, 4000)
    assert np.array_equal(whole.items, parts.items)


def test_popularity_has_a_long_tail() -> None:
    counts = np.sort(np.bincount(synthetic.generate(2000, 1000, 40_000).items))[::-1]
    assert counts[:10].sum() > 0.08 * counts.sum() > 10 * counts[-10:].sum()


def test_sizes_come_from_settings() -> None:
    data = load_data(DataSettings("synthetic", users=100, items=200, interactions=1000))
    assert (data.n_users, data.n_items, len(data)) == (100, 200, 1000)
    assert data.loaded_as == {
        "name": "synthetic",
        "min_interactions": 5,
        "users": 100,
        "items": 200,
        "interactions": 1000,
    }
    with pytest.raises(DataError, match=r"between 500 .* Found 10\."):
        load_data(DataSettings("synthetic", users=100, items=200, interactions=10))
    with pytest.raises(ConfigError, match="sizes of 'synthetic'"):
        load_data(DataSettings("demo", users=100))
