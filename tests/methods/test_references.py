"""What the reference rankers are for: seen-first exposes leaking data, ceilings are marked and know their limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.builders import interactions_of, random_interactions

import fedrecgel
from fedrecgel.data.history import History
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, DataError
from fedrecgel.methods import METHODS
from fedrecgel.methods.ease import EASE, LARGEST
from fedrecgel.methods.messages import Download, Need, Problem
from fedrecgel.methods.seen_first import SeenFirst
from fedrecgel.runs.config import from_dict
from fedrecgel.tables import State


def seen_first(popularity: list[float], own: dict[int, int]) -> torch.Tensor:
    """Scores of all items for one client who has these items so often."""
    items, counts = (np.array(values, dtype=np.int32) for values in (list(own), list(own.values())))
    history = History(ItemSets(len(popularity), np.array([0, len(own)]), items, counts), torch.tensor([0]))
    everything, down = torch.arange(len(popularity))[None], Download({"counts": torch.tensor(popularity)[:, None]})
    return SeenFirst().score(State(), down, history, everything)[0]


def test_own_items_come_first_by_count_then_popularity() -> None:
    scores = seen_first([5.0, 1, 9, 0, 3, 5], {1: 2, 3: 1, 4: 1})
    assert scores.argsort(descending=True, stable=True).tolist() == [1, 4, 3, 2, 0, 5]
    assert scores[0] == scores[5], "equal popularity is a tie"


def test_counts_stay_in_order_where_single_precision_ends() -> None:
    """Popularity differs by one in ten million, and the own count is large."""
    scores = seen_first([9_999_998.0, 9_999_999.0, 10_000_000.0], {0: 1000, 1: 1000})
    assert scores[1] > scores[0] > scores[2]


def test_it_exposes_a_leak() -> None:
    """Everybody's last item is one they had before: own items first finds it, popularity does not."""
    rows = [(user, (7 * user + k) % 200, k) for user in range(40) for k in range(6)]
    rows += [(user, 7 * user % 200, 6) for user in range(40)]
    split = interactions_of(rows, 200).split()
    seen, popular = (fedrecgel.train(name, split).metrics for name in ("seen-first", "popularity"))
    assert seen["HR@10"] == 1
    assert popular["HR@10"] < 0.5


def test_without_a_leak_it_is_popularity() -> None:
    data = random_interactions(30, 150)
    pairs = sorted({(int(u), int(i)) for u, i in zip(data.users, data.items, strict=True)})
    split = interactions_of([(user, item, item) for user, item in pairs], 150).split()
    seen, popular = (fedrecgel.train(name, split) for name in ("seen-first", "popularity"))
    assert seen.metrics == popular.metrics
    assert seen.metrics_full == popular.metrics_full


@pytest.mark.parametrize("name", ["itemknn", "ease", "ials", "gfcf"])
def test_ceilings_are_marked(name: str) -> None:
    """They see every history, and say so."""
    kind = METHODS[name]
    assert kind.kind == "centralised"
    assert kind().leaves_device() == {"interactions"}
    assert kind().server_needs == Need.EACH


@pytest.mark.parametrize("name", ["seen-first", "itemknn", "ease", "ials", "gfcf"])
def test_one_round_with_everyone_suffices(name: str) -> None:
    config = from_dict({"method": {"name": name}})
    assert config.run.rounds == 1
    assert config.method.build().fraction == 1


@pytest.mark.parametrize("name", ["seen-first", "itemknn", "ease", "ials", "gfcf"])
def test_a_saved_run_recommends_the_same(name: str, tmp_path: object) -> None:
    split = random_interactions(20, 150).split()
    result = fedrecgel.train(name, split)
    result.save(str(tmp_path))
    assert fedrecgel.open(str(tmp_path)).recommend("u3", k=5) == result.recommend("u3", k=5)


def test_ease_refuses_a_catalogue_it_cannot_hold() -> None:
    with pytest.raises(ConfigError, match=r"at most 30,000 items\. Found 30,001\. Use itemknn or ials"):
        EASE().init_server(Problem(10, LARGEST + 1), Draws(0))


def test_without_negatives_dense_data_are_no_obstacle() -> None:
    """Nobody has four items left to draw, and nobody needs to."""
    rows = [(user, item, item) for user in range(6) for item in range(7)]
    split = interactions_of(rows, 9).split(candidates=2)
    assert fedrecgel.train("ease", split).metrics["HR@10"] == 1
    with pytest.raises(DataError, match="Drawing 4 distinct negatives"):
        fedrecgel.train("fedncf", split)
