"""What a run says leaves the device is what its uploads carry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.builders import random_split, tiny

from fedrecgel.data.federation import Federation
from fedrecgel.draws import Draws
from fedrecgel.methods import METHODS as REGISTRY
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedncf_weights import FedNCFWeights
from fedrecgel.methods.fedrap import FedRAP
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import Need, Problem

SPLIT = random_split()
SMALL: dict[str, Any] = {"gmf_dim": 4, "mlp_dim": 8}
METHODS = [
    *(kind(**tiny(name)) for name, kind in REGISTRY.items()),
    FedRecGEL(**SMALL, g_norm=0.1),
    FedRAP(dim=4, weight_decay=0.0),
    FedRecGEL(**SMALL, model="mf"),
    FedNCF(**SMALL, model="mlp"),
    FedRecGEL(**SMALL, weighting="examples"),
    FedNCFWeights(**SMALL, aggregation="mean"),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{type(m).__name__}-{len(m.leaves_device())}")
def test_uploads_carry_exactly_what_is_said(method: Method) -> None:
    ids, draws, problem = torch.arange(4), Draws(0), Problem(SPLIT.n_users, SPLIT.n_items)
    down = method.broadcast(method.init_server(problem, draws), ids)
    sent = set[str]()
    for t in range(method.rounds or 1):  # a method that states its rounds may send something else in each
        batch = Federation(SPLIT).batch(ids, t, draws, negatives=method.samples_negatives)
        upload = method.client_update(method.init_clients(problem, ids, draws), down, batch, t, draws).upload
        weight = set() if (upload.weight == 1).all() else {"weight"}
        sent |= {*upload.dense, *upload.rows, *weight}
    few = replace(method, init="normal") if isinstance(method, FedNCF) else method  # too few for a spectral start
    assert sent == few.leaves_device() <= method.leaves_device()


def test_multiplying_what_was_received_needs_the_plain_sum() -> None:
    linear = FedRecGEL(server_optimiser="sgd", init="normal")
    assert linear.server_needs == Need.LINEAR
    assert replace(linear, g_norm=0.1).server_needs == replace(linear, init="auto").server_needs == Need.SUM
