from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from fedrecgel.data import demo
from fedrecgel.data.load import load
from fedrecgel.data.split import Split


def test_the_same_bits_everywhere() -> None:
    columns = demo.generate()
    digest = hashlib.sha256()
    for column in (columns.users.to_numpy(), columns.items.to_numpy(), columns.times):
        assert column is not None
        digest.update(column.astype("<i8").tobytes())
    assert digest.hexdigest() == demo.SHA256


def test_shape() -> None:
    data = load("demo")
    sizes = np.bincount(data.users)
    assert sizes.min() >= demo.FEWEST
    assert sizes.max() <= demo.MOST
    pairs = data.users.astype(np.int64) * data.n_items + data.items
    assert len(np.unique(pairs)) == len(data)
    assert data.times is not None
    for user in range(data.n_users):
        assert len(np.unique(data.times[data.users == user])) == sizes[user]


def test_popularity_has_a_long_tail() -> None:
    popularity = np.sort(np.bincount(load("demo").items))[::-1]
    assert popularity[:80].sum() > 0.3 * popularity.sum()
    assert np.median(popularity) < popularity[0] / 5


def hit_rate(split: Split, scores: npt.NDArray[np.float64]) -> float:
    candidates = np.concatenate([split.test[:, None], split.candidates], axis=1)
    ranked = np.take_along_axis(scores, candidates, axis=1)
    above = (ranked[:, 1:] > ranked[:, :1]).sum(1) + 0.5 * (ranked[:, 1:] == ranked[:, :1]).sum(1)
    return float((above < 10).mean())


def test_tastes_are_worth_learning() -> None:
    """Item-to-item cosine, a simple personalised scorer, is far above popularity."""
    split = load("demo").split()
    seen = np.zeros((split.n_users, split.n_items))
    seen[np.repeat(np.arange(split.n_users), np.diff(split.train.ptr)), split.train.items] = 1
    together = seen.T @ seen
    norm = np.sqrt(np.maximum(together.diagonal(), 1))
    cosine = together / np.outer(norm, norm)
    np.fill_diagonal(cosine, 0)
    popularity = hit_rate(split, np.tile(seen.sum(0), (split.n_users, 1)))
    assert 0.35 < popularity < 0.50
    assert hit_rate(split, seen @ cosine) > 0.70
