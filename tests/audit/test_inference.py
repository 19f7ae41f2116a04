"""Attacks have teeth where nothing protects, and none where cohorts are large."""

from __future__ import annotations

import numpy as np
import pytest
from tests.audit.scenes import popular_split, scene_of

from fedrecgel.audit.inference import attack_each, attack_sums, evidence, split_by_sign
from fedrecgel.audit.scene import Sight


@pytest.mark.parametrize("method", ["fedrecgel", "fedmf"])
def test_single_uploads_give_histories_away(method: str) -> None:
    found = attack_each(scene_of(method))
    assert found["gradient_sign"].f1 >= 0.99
    assert found["intersection"].f1 >= 0.99
    assert found["known_seed"].f1 > 0.75  # all that row numbers of one round settle here: test_replay.py
    assert found["touched_rows"].f1 < 0.5
    assert found["gradient_sign"].low > 0.3


@pytest.mark.parametrize("method", ["popularity", "spectra"])
def test_methods_without_negatives_send_their_histories(method: str) -> None:
    found = attack_each(scene_of(method))
    assert found["touched_rows"].f1 == 1
    assert "known_seed" not in found


def test_nodes_draw_from_a_secret_so_that_the_seed_tells_nothing() -> None:
    found = attack_each(scene_of("fedmf", run={"engine": "flower"}))
    assert found["known_seed"].f1 < 0.6
    assert found["gradient_sign"].f1 >= 0.99


@pytest.mark.parametrize("method", ["fedrecgel", "fedmf", "popularity"])
def test_sums_of_two_say_much_and_sums_of_many_little(method: str) -> None:
    scene = scene_of(method, split=popular_split(n_users=400, n_items=400))
    two, many = attack_sums(scene, 2), attack_sums(scene, 200)
    assert two.advantage >= 0.1
    assert many.advantage <= 0.03


def test_noise_hides_what_a_small_cohort_sends() -> None:
    hidden = scene_of("popularity", "dp", options={"fraction": 0.1}, dp={"epsilon": 1.0, "clip": 3.0})
    assert attack_sums(hidden, 6).advantage <= 0.05
    assert attack_sums(scene_of("popularity", options={"fraction": 0.1}), 6).advantage >= 0.05


def test_the_smaller_side_of_a_direction_are_the_positives() -> None:
    user = np.array([0.6, -0.8])
    rows = np.outer([-1, -2, 1, 1, 0.5, 1], user)
    assert split_by_sign(Sight(0, 0, np.arange(10, 16), (rows,))) == {10, 11}
    assert split_by_sign(Sight(0, 0, np.arange(3), (np.outer([1, 2, 3], user),))) == {0, 1, 2}
    assert split_by_sign(Sight(0, 0, np.zeros(0, dtype=np.int64), ())) == set()


def test_a_sum_without_tables_is_no_evidence() -> None:
    assert not evidence({}, np.ones(5), 2).any()
