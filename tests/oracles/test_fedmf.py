"""Batched FedMF equals a loop over clients and ratings, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedrecgel.data.federation import SamplingSettings
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.local import LocalEngine
from fedrecgel.methods.base import Server
from fedrecgel.methods.fedmf import FedMF
from tests.builders import problem_of
from tests.oracles.fedmf import FedMFOracle
from tests.oracles.plain import Devices, compare, engines_of, ragged_split

SMALL: dict[str, Any] = {"dim": 5, "fraction": 0.3, "lr": 0.2, "reg_user": 0.01, "reg_item": 0.02}


@pytest.fixture(scope="module")
def split() -> Split:
    return ragged_split()


def started(
    method: FedMF, split: Split, sampling: SamplingSettings | None = None
) -> tuple[list[LocalEngine], Server, FedMFOracle]:
    """Both writings from the same start, with an item table large enough that sigmoids are not straight lines."""
    engines = engines_of(method, split, sampling)
    server = method.init_server(problem_of(split), engines[0].draws)
    server = replace(server, shared={"items": server.shared["items"] * (60 if method.init == "normal" else 1)})
    users = engines[0].store.read(engines[0].population())["user"]
    return engines, server, FedMFOracle(method, users, server.shared["items"])


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "native": {
        **FedMF.variants["native"],
    },
    "squared": {"loss": "squared", "lr": 0.05},
    "batch": {"updates": "batch"},
    "batch-squared-last": {"updates": "batch", "loss": "squared", "lr": 0.02, "repeated": "last"},
    "mean": {"aggregation": "mean", "server_lr": 2.0},
    "slow-server": {"server_lr": 0.3},
    "last": {"repeated": "last"},
    "positives": {"examples": "positives"},
    "positives-batch": {"examples": "positives", "updates": "batch"},
    "rounded": {"precision": 1e-3},
    "rounded-mean-last": {"precision": 1e-3, "aggregation": "mean", "repeated": "last"},
    "unregularised": {"reg_user": 0.0, "reg_item": 0.0},
    "constant": {"init": "constant"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(split: Split, name: str) -> None:
    method = FedMF(**{**SMALL, **VARIANTS[name]})
    compare(method, *started(method, split))


def test_repeated_rows_and_native_sampling(split: Split) -> None:
    """A positive that occurs twice is stepped through twice, and the order of its ratings counts."""
    sampling = SamplingSettings(negatives=3, repeats=True, redraw=False, exclude_heldout_from_negatives=True)
    choices: list[dict[str, Any]] = [{}, {"repeated": "last"}, {"updates": "batch"}]
    for options in choices:
        method = FedMF(**SMALL, **options)
        engines, server, oracle = started(method, split, sampling)
        items, labels = Devices(engines[0].federation, engines[0].draws).examples(1, 0)
        assert len(items[labels == 1]) > len(set(items[labels == 1].tolist()))
        compare(method, engines, server, oracle)


def test_options_make_a_difference(split: Split) -> None:
    """Otherwise agreement would show nothing."""
    ends = {}
    for name, options in VARIANTS.items():
        method = FedMF(**{**SMALL, **options, "dim": 5, "fraction": 0.3})
        engines, server, oracle = started(method, split)
        oracle.train([1, 4, 6], Devices(engines[0].federation, engines[0].draws), 0)
        ends[name] = oracle.shared["items"]
        assert not torch.equal(ends[name], server.shared["items"]), name
    names = list(ends)
    for number, name in enumerate(names):
        assert not any(torch.allclose(ends[name], ends[other]) for other in names[:number]), name


def test_start(split: Split) -> None:
    problem, everyone = problem_of(split), torch.arange(split.n_users)
    normal = FedMF(dim=100)
    items = normal.init_server(problem, Draws(0)).shared["items"]
    users = normal.init_clients(problem, everyone, Draws(0))["user"]
    for drawn in (items, users):
        assert float(drawn.std()) == pytest.approx(0.01, rel=0.1)
        assert abs(float(drawn.mean())) < 0.001
    constant = FedMF(init="constant")
    assert (constant.init_server(problem, Draws(0)).shared["items"] == 0.01).all()
    assert (constant.init_clients(problem, everyone, Draws(0))["user"] == 0.01).all()
