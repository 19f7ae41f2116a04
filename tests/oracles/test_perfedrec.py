"""Batched PerFedRec equals a loop over clients with whole tables and differentiated losses, in float64."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from fedrecgel.data.split import Split
from fedrecgel.methods.perfedrec import PerFedRec
from tests.builders import engine_of, problem_of
from tests.oracles.perfedrec import PerFedRecOracle
from tests.oracles.plain import SEED, catalogue_scores, run_of, start

SMALL: dict[str, Any] = {"dim": 4, "fraction": 0.3, "clusters": 3}
VARIANTS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "native": {**PerFedRec.variants["native"], **SMALL, "dim": 5, "noise_rows": 9},
    "native-propagation": {"propagation": "native"},
    "unmatched": {"match_clusters": False},
    "noise": {"noise": 0.3, "noise_rows": 12},
    "decay": {"decay": 20.0},
    "rates": {"lr": 0.2, "user_lr": 0.3, "local_lr": 0.5},
    "everyone": {"fraction": 1.0, "lr": 0.1},
    "one-cluster": {"clusters": 1, "lr": 0.1},
    "more-clusters-than-users": {"clusters": 7, "fraction": 0.3, "match_clusters": False},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(small_split: Split, name: str) -> None:
    method = PerFedRec(**{**SMALL, **VARIANTS[name]})
    found = start(PerFedRecOracle, method, small_split).compare()
    assert found.parted or method.clusters == 1, "some cluster should have left the global model"


def test_the_variants_are_not_vacuous(small_split: Split) -> None:
    """Every option changes the result, so agreement with the oracle means something."""
    scores = {}
    for name, options in VARIANTS.items():
        scores[name] = catalogue_scores(
            *run_of(PerFedRec(**{**SMALL, "lr": 0.1, "user_lr": 0.1, **options}), small_split)
        )
    for name, found in scores.items():
        assert name == "corrected" or not torch.allclose(scores["corrected"], found), name


def test_the_cohort_is_half_uniform_and_half_by_cluster_size(small_split: Split) -> None:
    """No one twice, the right number, everyone at times, and members of large clusters more often."""
    method = PerFedRec(dim=4, fraction=0.3)
    server = method.init_server(problem_of(small_split), engine_of(method, small_split).draws)
    server.shared["label"][:] = torch.tensor([1] * 11 + [2] * 3)
    drawn: Counter[int] = Counter()
    for t in range(400):
        cohort = method.cohort(server, torch.arange(14), t, engine_of(method, small_split).draws).tolist()
        assert len(cohort) == len(set(cohort)) == 4
        drawn.update(cohort)
    large, small = (np.mean([drawn[user] for user in users]) for users in (range(11), range(11, 14)))
    # Two of 14 uniformly, two draws with weights 11 and 3, rarely a duplicate that is replaced.
    chance = 400 * np.array([2 / 14 + 2 * 11 / (121 + 9), 2 / 14 + 2 * 3 / (121 + 9)])
    assert abs(large - chance[0]) < 0.1 * chance[0]
    assert abs(small - chance[1]) < 0.2 * chance[1]


def test_noise_is_not_in_the_local_model_and_nothing_else_is_sent(small_split: Split) -> None:
    """Uploads carry the declared names; noise falls on the gradient of items only."""
    uploads = []
    for noise in (0.0, 0.5):
        method = PerFedRec(**SMALL, noise=noise, noise_rows=5)
        engine = engine_of(method, small_split, seed=SEED)
        server = method.init_server(problem_of(small_split), engine.draws)
        inbox = engine.train(server, engine.population(), 0).inbox
        assert {*inbox.total()} == method.leaves_device()
        uploads.append((inbox.total(), engine.store.read(engine.population()).tables["local"].dense()))
    (clear, local), (noised, same_local) = uploads
    assert torch.equal(local, same_local)
    assert not torch.allclose(clear["items"], noised["items"])
    assert all(torch.equal(clear[name], noised[name]) for name in ("user", "neighbours", "degree"))
