"""Batched PFedRec equals a loop over clients with a full item table each, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedrecgel.data.federation import SamplingSettings
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.local import LocalEngine
from fedrecgel.methods.base import Server
from fedrecgel.methods.pfedrec import PFedRec
from tests.builders import problem_of
from tests.oracles.pfedrec import PFedRecOracle
from tests.oracles.plain import Devices, compare, engines_of, ragged_split

SMALL: dict[str, Any] = {"dim": 5, "fraction": 0.3, "lr": 0.3, "lr_eta": 0.5}


@pytest.fixture(scope="module")
def split() -> Split:
    return ragged_split()


def started(
    method: PFedRec, split: Split, sampling: SamplingSettings | None = None
) -> tuple[list[LocalEngine], Server, PFedRecOracle]:
    """Both writings from the same start."""
    engines = engines_of(method, split, sampling)
    server = method.init_server(problem_of(split), engines[0].draws)
    state = engines[0].store.read(engines[0].population())
    return engines, server, PFedRecOracle(method, server.shared["items"], state["w"], state["b"])


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
    engines, server, oracle = started(method, split)
    compare(method, engines, server, oracle)
    assert oracle.saturated > 0 or not name.startswith("far-off")


def test_repeated_rows_and_native_sampling(split: Split) -> None:
    sampling = SamplingSettings(negatives=3, repeats=True, redraw=False, exclude_heldout_from_negatives=True)
    method = PFedRec(**SMALL, batch_size=16, epochs=2)
    compare(method, *started(method, split, sampling))


def test_options_make_a_difference(split: Split) -> None:
    """Otherwise agreement would show nothing."""
    ends = []
    for options in VARIANTS.values():
        method = PFedRec(**{**SMALL, **options})
        engines, _, oracle = started(method, split)
        for t in range(2):
            oracle.train([1, 4], Devices(engines[0].federation, engines[0].draws), t)
        ends.append((oracle.scores(1), oracle.scores(9)))  # one that took part and one that did not
    for number, (first, second) in enumerate(ends):
        same = [k for k in range(number) if torch.allclose(first, ends[k][0]) and torch.allclose(second, ends[k][1])]
        assert [list(VARIANTS)[k] for k in same] == (["alone"] if number == len(ends) - 1 else [])


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
