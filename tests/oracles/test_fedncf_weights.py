"""Batched FedNCF-weights equals a loop over clients with a model of their own, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedrecgel.data.federation import SamplingSettings
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.economies import has_kernel
from fedrecgel.engine.local import LocalEngine
from fedrecgel.methods.base import Server
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedncf_weights import FedNCFWeights
from tests.builders import problem_of
from tests.oracles.fedncf_weights import FedNCFWeightsOracle
from tests.oracles.plain import Devices, compare, engines_of, ragged_split

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


@pytest.fixture(scope="module")
def split() -> Split:
    return ragged_split()


def started(
    method: FedNCFWeights, split: Split, sampling: SamplingSettings | None = None
) -> tuple[list[LocalEngine], Server, FedNCFWeightsOracle]:
    """Both writings from the same start."""
    engines = engines_of(method, split, sampling)
    server = method.init_server(problem_of(split), engines[0].draws)
    # At the initial N(0, 0.01²) everything is nearly linear; larger tables test all of the mathematics.
    shared = {name: value * (30 if name.startswith("item") else 1) for name, value in server.shared.items()}
    users = engines[0].store.read(engines[0].population())["user"]
    return engines, replace(server, shared=shared), FedNCFWeightsOracle(method, shared, users)


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(split: Split, name: str) -> None:
    method = FedNCFWeights(**{**SMALL, **VARIANTS[name]})
    compare(method, *started(method, split))


def test_repeated_rows(split: Split) -> None:
    method = FedNCFWeights(**SMALL, batch_size=32)
    compare(method, *started(method, split, SamplingSettings(negatives=3, repeats=True, redraw=False)))


def test_options_make_a_difference(split: Split) -> None:
    """Otherwise agreement would show nothing."""
    ends = []
    for options in VARIANTS.values():
        engines, _, oracle = started(FedNCFWeights(**{**SMALL, **options}), split)
        for t in range(2):
            oracle.train([1, 4], Devices(engines[0].federation, engines[0].draws), t)
        ends.append(oracle.scores(1))
    assert not [k for k, end in enumerate(ends) for other in ends[:k] if torch.allclose(end, other)]


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
