"""Batched FedRecGEL and FedNCF equal a loop over clients, module by module, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedrecgel.channels.sums import add_up
from fedrecgel.data.split import Split
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import Download
from tests.builders import engine_of, problem_of
from tests.oracles import fedrecgel as oracle
from tests.oracles.fedrecgel import FedRecGELOracle
from tests.oracles.plain import SEED, assert_close, run_of, start

SMALL: dict[str, Any] = {"gmf_dim": 4, "mlp_dim": 8, "fraction": 0.7, "chunk": 16}
TOLERANCE = 1e-12

VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "wide": {"rho_co": 0.5, "rho_ur": 0.3},
    "without-shared": {"rho_co": 0.0},
    "without-private": {"rho_ur": 0.0},
    "user-first": {"order": "user-first", "rho_co": 0.1, "rho_ur": 0.1},
    "plain-steps": {"user_optimiser": "sgd", "server_optimiser": "sgd", "server_lr": 0.5},
    "balls": {"balls": "item", "rho_co": 0.3, "rho_ur": 0.1},
    "balls-user-first": {"balls": "item", "order": "user-first", "rho_co": 0.3},
    "mean": {"reduction": "mean"},
    "no-prior": {"reg_user": 0.0},
    "random-start": {"init": "normal"},  # without FedAdam's τ
    "weighted": {"weighting": "examples"},
    "g-norm": {**FedRecGEL.variants["paper"], "g_norm": 0.01},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(split: Split, name: str) -> None:
    found = start(FedRecGELOracle, FedRecGEL(**{**VARIANTS[name], **SMALL}), split, scale=30).compare(TOLERANCE)
    assert found.repeated > 0, "the catalogue should be small enough for repeated negatives"


def test_fedncf_is_fedrecgel_with_zero_radii(split: Split) -> None:
    (ours, first), (theirs, second) = (
        run_of(method, split, scale=30) for method in (FedNCF(**SMALL), FedRecGEL(**SMALL, rho_co=0, rho_ur=0))
    )
    assert all(torch.equal(value, second.shared[name]) for name, value in first.shared.items())
    users = [engine.store.read(engine.population())["user"] for engine in (ours, theirs)]
    assert torch.equal(users[0], users[1])


@pytest.mark.parametrize("zero", ["no examples", "no output weights"])
def test_a_client_without_gradient(split: Split, zero: str) -> None:
    """A zero gradient leaves the point where it is; the other clients of the batch do not notice."""
    method = FedRecGEL(**SMALL, rho_co=0.3, rho_ur=0.2)
    started = start(FedRecGELOracle, method, split, scale=30)
    engine, server, ids = started.engines[0], started.server, torch.arange(4)
    batch = engine.federation.batch(ids, 0, engine.draws)
    if zero == "no examples":
        batch = replace(batch, mask=batch.mask & (ids != 2)[:, None], row_mask=batch.row_mask & (ids != 2)[:, None])
    else:
        shared = {name: value * (not name.startswith("out_")) for name, value in server.shared.items()}
        server = replace(server, shared=shared)
    private = engine.store.read(ids)
    result = method.client_update(private, Download(server.shared), batch, 0, engine.draws)
    total = add_up([result.upload], split.n_items, method.server_needs).total()
    sums = {name: torch.zeros_like(value) for name, value in server.shared.items()}
    for row in range(len(ids)):
        client = oracle.Client(nn.Parameter(private["user"][row].clone())).attach(method)
        own = batch.mask[row]
        sent = oracle.client_update(method, client, server.shared, batch.items[row, own], batch.labels[row, own])
        assert_close(result.private["user"][row], client.user.detach(), f"client {row}", TOLERANCE)
        for name, value in sent.items():
            sums[name] += value
    for name, value in sums.items():
        assert torch.isfinite(total[name]).all()
        assert_close(total[name], value, name, TOLERANCE)


def test_float32_is_close(split: Split) -> None:
    """The same round in single precision, to 1e-5 of the largest entry."""
    means, method = [], FedRecGEL(**SMALL)
    for dtype in (torch.float32, torch.float64):
        engine = engine_of(method, split, seed=SEED, dtype=dtype)
        server = method.init_server(problem_of(split, dtype), engine.draws)
        means.append(engine.train(server, engine.population(), 0).inbox.mean())
    for name, value in means[1].items():
        assert float((means[0][name] - value).abs().max()) <= 1e-5 * float(value.abs().max()), name
