"""Batched FedNCF-weights equals a loop over clients with a model of their own, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedrecgel.data.federation import SamplingSettings
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.economies import has_kernel
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedncf_weights import FedNCFWeights
from tests.builders import problem_of
from tests.oracles.fedncf_weights import FedNCFWeightsOracle
from tests.oracles.plain import assert_all_differ, start

SMALL: dict[str, Any] = {"gmf_dim": 4, "mlp_dim": 8, "fraction": 0.3, "lr": 0.01}

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "mean": {"aggregation": "mean"},
    "batches": {"batch_size": 32},
    "batches-mean": {"batch_size": 32, "aggregation": "mean"},
    "batches-epochs": {"batch_size": 32, "epochs": 3},
    "one-epoch": {"epochs": 1},
    "rates": {"lr": 0.05, "user_lr": 0.02},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(split: Split, name: str) -> None:
    start(FedNCFWeightsOracle, FedNCFWeights(**{**SMALL, **VARIANTS[name]}), split, scale=30).compare()


def test_repeated_rows(split: Split) -> None:
    sampling = SamplingSettings(negatives=3, repeats=True, redraw=False)
    start(FedNCFWeightsOracle, FedNCFWeights(**SMALL, batch_size=32), split, sampling, scale=30).compare()


def test_options_make_a_difference(split: Split) -> None:
    ends = {}
    for name, options in VARIANTS.items():
        started = start(FedNCFWeightsOracle, FedNCFWeights(**{**SMALL, **options}), split, scale=30)
        ends[name] = started.oracle_scores([1, 4], 2, 1)
    assert_all_differ(ends)


def test_both_fedncf_start_from_the_same_model(split: Split) -> None:
    problem, draws, ids = problem_of(split), Draws(0), torch.arange(split.n_users)
    ours, theirs = FedNCFWeights(), FedNCF()
    assert torch.equal(ours.init_clients(problem, ids, draws)["user"], theirs.init_clients(problem, ids, draws)["user"])
    shared = theirs.init_server(problem, draws).shared
    for name, value in ours.init_server(problem, draws).shared.items():
        assert torch.equal(value, shared[name])


def test_no_kernel_trains_it() -> None:
    """`local.accelerate` leaves it as it is, rather than sending gradients."""
    assert not has_kernel(FedNCFWeights())
