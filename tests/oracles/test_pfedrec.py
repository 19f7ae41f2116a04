"""Batched PFedRec equals a loop over clients with a full item table each, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.methods.pfedrec import PFedRec
from tests.builders import problem_of
from tests.oracles.pfedrec import PFedRecOracle
from tests.oracles.plain import NATIVE_SAMPLING, assert_all_differ, start

SMALL: dict[str, Any] = {"dim": 5, "fraction": 0.3, "lr": 0.3, "lr_eta": 0.5}


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "native": {**PFedRec.variants["native"]},
    "far-off": {"lr_eta": 300.0, "batch_size": 20},
    "far-off-unsaturated": {"lr_eta": 300.0, "batch_size": 20, "saturating_bce": False},
    "batches": {"batch_size": 16},
    "batches-epochs": {"batch_size": 16, "epochs": 3},
    "batches-of-one": {"batch_size": 1, "lr_eta": 0.05},
    "epochs": {"epochs": 2},
    "alone": {"alone": True},
    "alone-batches-epochs": {"alone": True, "batch_size": 16, "epochs": 2},
    "alone-initial": {"alone": True, "unseen": "initial"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(split: Split, name: str) -> None:
    method = PFedRec(**{**SMALL, **VARIANTS[name]})
    oracle = start(PFedRecOracle, method, split).compare()
    assert oracle.saturated > 0 or not name.startswith("far-off")


def test_repeated_rows_and_native_sampling(split: Split) -> None:
    start(PFedRecOracle, PFedRec(**SMALL, batch_size=16, epochs=2), split, NATIVE_SAMPLING).compare()


def test_options_make_a_difference(split: Split) -> None:
    """To one that took part and to one that did not; with a table of one's own, the first one is what is unseen."""
    ends = {}
    for name, options in VARIANTS.items():
        ends[name] = start(PFedRecOracle, PFedRec(**{**SMALL, **options}), split).oracle_scores([1, 4], 2, 1, 9)
    assert_all_differ(ends, but=[("alone", "alone-initial")])


def test_start(split: Split) -> None:
    """The same for all, private parts included: N(0, 1) items and a layer uniform in ±1/√d."""
    method, problem = PFedRec(dim=64), problem_of(split)
    state = method.init_clients(problem, torch.arange(split.n_users), Draws(0))
    items = method.init_server(problem, Draws(0)).shared["items"]
    assert float(items.std()) == pytest.approx(1, abs=0.03)
    assert all(torch.equal(own, items) for own in state.tables["items"].dense())
    for drawn in (state["w"], state["b"]):
        assert (drawn == drawn[0]).all()
        assert float(drawn.abs().max()) <= 1 / 8
    assert float(state["w"].abs().max()) > 0.1
    assert float(state["w"].min()) < 0 < float(state["w"].max())
