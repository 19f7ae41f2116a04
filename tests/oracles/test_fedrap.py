"""Batched FedRAP equals a loop over clients with full item tables each, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.methods.fedrap import FedRAP
from tests.builders import problem_of
from tests.oracles.fedrap import FedRAPOracle
from tests.oracles.plain import NATIVE_SAMPLING, assert_all_differ, start

SMALL: dict[str, Any] = {"dim": 5, "fraction": 0.3, "lr_network": 0.3, "lr_items": 20.0, "weight_decay": 1e-3}


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {"epochs": 3},
    "native": {**FedRAP.variants["native"], "epochs": 3},
    "far-off": {"lr_network": 3.0, "lr_items": 900.0, "batch_size": 16, "epochs": 2},
    "far-off-unsaturated": {
        "lr_network": 3.0,
        "lr_items": 300.0,
        "batch_size": 16,
        "epochs": 2,
        "saturating_bce": False,
    },
    "one-epoch": {"epochs": 1},
    "batches": {"epochs": 1, "batch_size": 16},
    "batches-epochs": {"epochs": 3, "batch_size": 16, "vary": "fixed"},
    "no-decay": {"epochs": 2, "weight_decay": 0.0},
    "no-decay-batches": {"epochs": 2, "weight_decay": 0.0, "batch_size": 16},
    "strong-decay": {"epochs": 2, "weight_decay": 1e-2, "batch_size": 16, "lr_items": 10.0},
    "tolerant": {"tolerance": 0.02, "lr_items": 2.0},
    "tolerant-batches": {"tolerance": 0.02, "lr_items": 1.0, "batch_size": 16, "vary": "fixed", "lambda_": 0.01},
    "stubborn": {"tolerance": 0.0, "epochs": 6, "lr_items": 5.0},
    "steady-rates": {"epochs": 2, "round_decay": 1.0, "batch_decay": 1.0, "batch_size": 16},
    "unregularised": {"epochs": 3, "lambda_": 0.0, "mu": 0.0},
    "alone": {"epochs": 2, "alone": True},
    "alone-batches": {"epochs": 2, "alone": True, "batch_size": 16, "vary": "fixed"},
    "alone-no-decay": {"epochs": 2, "alone": True, "weight_decay": 0.0},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(split: Split, name: str) -> None:
    method = FedRAP(**{**SMALL, **VARIANTS[name]})
    oracle = start(FedRAPOracle, method, split).compare()
    assert oracle.saturated > 0 or not name.startswith("far-off")
    if name.startswith("tolerant"):
        assert len(oracle.epochs_run) > 2, "clients should stop at different times"
        assert min(oracle.epochs_run) < method.epochs
    if name == "stubborn":
        assert oracle.epochs_run == {method.epochs}


def test_repeated_rows_and_native_sampling(split: Split) -> None:
    start(FedRAPOracle, FedRAP(**SMALL, batch_size=16, epochs=2), split, NATIVE_SAMPLING).compare()


def test_options_make_a_difference(split: Split) -> None:
    ends = {}
    for name, options in VARIANTS.items():
        ends[name] = start(FedRAPOracle, FedRAP(**{**SMALL, **options}), split).oracle_scores([1, 4], 2, 1)
    assert_all_differ(ends)


def test_start(split: Split) -> None:
    """The same for all: C and D independent N(0, 1), a layer uniform in ±1/√d."""
    method, problem = FedRAP(dim=64), problem_of(split)
    state = method.init_clients(problem, torch.arange(split.n_users), Draws(0))
    common = method.init_server(problem, Draws(0)).shared["common"]
    personal = state.tables["personal"].dense()
    assert all(torch.equal(own, personal[0]) for own in personal)
    for drawn in (common, personal[0]):
        assert float(drawn.std()) == pytest.approx(1, abs=0.03)
    assert abs(float((common * personal[0]).mean())) < 0.05
    for drawn in (state["w"], state["b"]):
        assert (drawn == drawn[0]).all()
        assert float(drawn.abs().max()) <= 1 / 8
    assert float(state["w"].abs().max()) > 0.1
