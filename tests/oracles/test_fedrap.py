"""Batched FedRAP equals a loop over clients with full item tables each, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedrecgel.data.federation import SamplingSettings
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.local import LocalEngine
from fedrecgel.methods.base import Server
from fedrecgel.methods.fedrap import FedRAP
from tests.builders import problem_of
from tests.oracles.fedrap import FedRAPOracle
from tests.oracles.plain import Devices, compare, engines_of, ragged_split

SMALL: dict[str, Any] = {"dim": 5, "fraction": 0.3, "lr_network": 0.3, "lr_items": 20.0, "weight_decay": 1e-3}


@pytest.fixture(scope="module")
def split() -> Split:
    return ragged_split()


def started(
    method: FedRAP, split: Split, sampling: SamplingSettings | None = None
) -> tuple[list[LocalEngine], Server, FedRAPOracle]:
    """Both writings from the same start."""
    engines = engines_of(method, split, sampling)
    server = method.init_server(problem_of(split), engines[0].draws)
    state = engines[0].store.read(engines[0].population())
    personal = state.tables["personal"].dense()
    return engines, server, FedRAPOracle(method, server.shared["common"], personal, state["w"], state["b"])


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
    engines, server, oracle = started(method, split)
    compare(method, engines, server, oracle)
    assert oracle.saturated > 0 or not name.startswith("far-off")
    if name.startswith("tolerant"):
        assert len(oracle.epochs_run) > 2, "clients should stop at different times"
        assert min(oracle.epochs_run) < method.epochs
    if name == "stubborn":
        assert oracle.epochs_run == {method.epochs}


def test_repeated_rows_and_native_sampling(split: Split) -> None:
    sampling = SamplingSettings(negatives=3, repeats=True, redraw=False, exclude_heldout_from_negatives=True)
    method = FedRAP(**SMALL, batch_size=16, epochs=2)
    compare(method, *started(method, split, sampling))


def test_options_make_a_difference(split: Split) -> None:
    """Otherwise agreement would show nothing."""
    ends: dict[str, torch.Tensor] = {}
    for name, options in VARIANTS.items():
        method = FedRAP(**{**SMALL, **options})
        engines, _, oracle = started(method, split)
        for t in range(2):
            oracle.train([1, 4], Devices(engines[0].federation, engines[0].draws), t)
        found = oracle.scores(1)
        assert not [other for other, end in ends.items() if torch.allclose(found, end)], name
        ends[name] = found


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
