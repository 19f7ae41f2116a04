"""Batched CoFedRec equals a loop over clients with whole tables and differentiated losses, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedrecgel.data.split import Split
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.tables import NO_TABLE
from tests.builders import engine_of, problem_of
from tests.oracles.cofedrec import CoFedRecOracle
from tests.oracles.plain import ROUNDS, SEED, assert_close, catalogue_scores, run_of, start

SMALL: dict[str, Any] = {"dim": 4, "fraction": 0.3, "lr_eta": 0.5, "clusters": 4, "restarts": 2, "reg": 0.1}
VARIANTS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "native": {**CoFedRec.variants["native"], "reg": 0.005},
    "several-batches": {"batch_size": 16, "epochs": 2},
    "everyone": {"fraction": 1.0},
    "most": {"fraction": 0.7, "batch_size": 32},
    "without-contrast": {"reg": 0.0},
    "warm": {"temperature": 0.7, "base_temperature": 0.2},
    "anchors": {"anchors": 7, "batch_size": 32},
    "more-anchors-than-items": {"anchors": 1000},
    "one-cluster": {"clusters": 1},
    "singletons": {"clusters": 50},
    "saturated": {"lr": 0.3, "lr_eta": 80.0, "batch_size": 16, "reg": 0.005},
    "plain-bce": {"lr": 0.3, "lr_eta": 80.0, "batch_size": 16, "reg": 0.005, "saturating_bce": False},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(small_split: Split, name: str) -> None:
    method = CoFedRec(**{**SMALL, **VARIANTS[name]})
    found = start(CoFedRecOracle, method, small_split).compare()
    assert method.batch_size > 32 or len(found.batch_counts) > 1, "some should have run out of batches before others"
    assert max(found.group_sizes) > 1, "some group should have several members"


def test_the_variants_are_not_vacuous(small_split: Split) -> None:
    """Every option changes the result, so agreement with the oracle means something."""
    scores = {}
    for name, options in VARIANTS.items():
        scores[name] = catalogue_scores(*run_of(CoFedRec(**{**SMALL, **options}), small_split))
    for name, found in scores.items():
        base = scores["saturated" if name == "plain-bce" else "corrected"]
        equal = name in ("corrected", "more-anchors-than-items")
        assert torch.allclose(base, found) == equal, name


def test_only_the_table_leaves_the_device(small_split: Split) -> None:
    method = CoFedRec(**SMALL)
    engine = engine_of(method, small_split, seed=SEED)
    server = method.init_server(problem_of(small_split), engine.draws)
    for upload in engine.train(server, engine.population(), 0).inbox.each():
        assert upload.dense.keys() == {"items"} == method.leaves_device()
        assert upload.at.numel() == 0, "whole tables need no list of the rows a client touched"


def test_a_group_waits_for_a_member_that_sleeps(small_split: Split) -> None:
    """Only members receive a table; who trained on it keeps the result and no longer receives it."""
    engine, server = run_of(CoFedRec(**SMALL), small_split)
    down = engine.method.broadcast(server, engine.population())
    assert down.shared.keys() == {"labels"}, "neither the mean table nor other groups' are sent"
    waiting = (server.shared["group_of"] != NO_TABLE).nonzero()[:, 0]
    assert len(server.shared["groups"]) > 1
    later = engine.method.server_update(server, engine.train(server, waiting, ROUNDS).inbox, ROUNDS, engine.draws)
    assert len(later.shared["groups"]) == 1, "groups that nobody waits for are forgotten"


def test_16_bits_are_close_and_labelled(small_split: Split) -> None:
    """Tables of half the size: within their precision of the exact run, the same bits each time."""
    method = CoFedRec(**SMALL, storage="bfloat16")
    (engine, server), (again, second) = run_of(method, small_split), run_of(method, small_split)
    assert engine.store.read(engine.population())["items"].dtype == torch.bfloat16
    assert server.shared["groups"].dtype == torch.bfloat16
    assert torch.equal(catalogue_scores(engine, server), catalogue_scores(again, second))
    # Rounding may move the elbow, so the precision is that of one round of training.
    private = []
    for kind in (method, replace(method, storage="full")):
        engine = engine_of(kind, small_split, seed=SEED)
        engine.train(kind.init_server(problem_of(small_split), engine.draws), engine.population(), 0)
        private.append(engine.store.read(engine.population()))
    assert_close(private[0]["items"].double(), private[1]["items"], "16 bits", tolerance=0.02)
    assert_close(private[0]["w"], private[1]["w"], "score function", tolerance=0.02)
