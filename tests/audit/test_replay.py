"""The seed and row numbers give positives away."""

from __future__ import annotations

import numpy as np
from tests.audit.scenes import popular_split, scene_of

from fedrecgel.audit.guesses import f1
from fedrecgel.audit.replay import replay_negatives
from fedrecgel.audit.scene import Scene, Sight
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws


def sights_of(scene: Scene) -> list[Sight]:
    (sights,) = list(scene.watch(scene.some_clients(10), 1))
    return sights


def replayed(scene: Scene, sight: Sight, seed: int = 0) -> set[int]:
    return replay_negatives(sight.items.tolist(), scene.split.n_items, sight.client, 0, seed)


def touched(own: set[int], n_items: int, client: int) -> set[int]:
    """Rows of a client with these items, drawn as a device draws, with four negatives for each of them."""
    items = np.array(sorted(own), dtype=np.int32)
    sets = ItemSets(n_items, np.array([0, len(items)]), items, np.ones_like(items))
    counters = np.arange(len(own))[:, None] * 4 + np.arange(4)[None, :]
    uniform = Draws(0).uniform("negatives", 0, np.array([[client]]), counters)
    return own | set(sets.outside(np.zeros(len(own), dtype=np.int64), uniform).ravel().tolist())


def test_positives_are_found_with_the_right_seed_only() -> None:
    """Few of the rows of a large catalogue are neighbours."""
    scene = scene_of("fedmf", split=popular_split(n_items=4000))
    right, wrong = (
        [f1(replayed(scene, one, seed), scene.histories.of(one.client)) for one in sights_of(scene)] for seed in (0, 1)
    )
    assert np.mean(right) > 0.97
    assert np.mean(wrong) < 0.5


def test_what_one_round_leaves_open_explains_every_row() -> None:
    """In a small catalogue the guess differs from the truth, but no row number could tell them apart."""
    scene = scene_of("fedmf")
    differ = 0
    for one in sights_of(scene):
        guess, truth = replayed(scene, one), scene.histories.of(one.client)
        rows = set(one.items.tolist())
        assert touched(guess, 200, one.client) == touched(truth, 200, one.client) == rows
        assert all({item - 1, item + 1} & rows for item in guess ^ truth)
        differ += guess != truth
    assert differ
