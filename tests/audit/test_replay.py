"""The seed and row numbers give positives away."""

from __future__ import annotations

from tests.audit.scenes import scene_of

from fedrecgel.audit.guesses import f1
from fedrecgel.audit.replay import replay_negatives


def test_positives_are_found_with_the_right_seed_only() -> None:
    scene = scene_of("fedmf")
    (sights,) = list(scene.watch(scene.some_clients(10), 1))
    right, wrong = (
        [
            f1(replay_negatives(one.items.tolist(), 200, one.client, 0, seed), scene.histories.of(one.client))
            for one in sights
        ]
        for seed in (0, 1)
    )
    assert sum(right) / len(right) > 0.8
    assert sum(wrong) / len(wrong) < 0.6
