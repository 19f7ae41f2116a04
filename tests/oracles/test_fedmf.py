"""Batched FedMF equals a loop over clients and ratings, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedrecgel.data.federation import SamplingSettings
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.methods.fedmf import FedMF
from tests.builders import problem_of
from tests.oracles.fedmf import FedMFOracle
from tests.oracles.plain import NATIVE_SAMPLING, Start, assert_all_differ, start

SMALL: dict[str, Any] = {"dim": 5, "fraction": 0.3, "lr": 0.2, "reg_user": 0.01, "reg_item": 0.02}


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "native": {**FedMF.variants["native"]},
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
    "catalogue": {"catalogue": 0.1, "lr": 0.02},
    "catalogue-mean": {"catalogue": 0.3, "lr": 0.01, "aggregation": "mean", "server_lr": 2.0},
}


def begin(method: FedMF, split: Split, sampling: SamplingSettings | None = None) -> Start[FedMFOracle]:
    """With an item table large enough that sigmoids are not straight lines."""
    return start(FedMFOracle, method, split, sampling, scale=60 if method.init == "normal" else 1)


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(split: Split, name: str) -> None:
    begin(FedMF(**{**SMALL, **VARIANTS[name]}), split).compare()


def test_repeated_rows_and_native_sampling(split: Split) -> None:
    """A positive that occurs twice is stepped through twice, and the order of its ratings counts."""
    choices: list[dict[str, Any]] = [{}, {"repeated": "last"}, {"updates": "batch"}]
    for options in choices:
        started = begin(FedMF(**SMALL, **options), split, NATIVE_SAMPLING)
        items, labels = started.devices.examples(1, 0)
        assert len(items[labels == 1]) > len(set(items[labels == 1].tolist()))
        started.compare()


def test_options_make_a_difference(split: Split) -> None:
    ends = {}
    for name, options in VARIANTS.items():
        started = begin(FedMF(**{**SMALL, **options, "dim": 5, "fraction": 0.3}), split)
        started.oracle.train([1, 4, 6], started.devices, 0)
        ends[name] = started.oracle.shared["items"]
        assert not torch.equal(ends[name], started.server.shared["items"]), name
    assert_all_differ(ends)


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
