"""Batched FedRecGEL and FedNCF equal a loop over clients, module by module, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedrecgel.channels.base import Plain
from fedrecgel.channels.sums import add_up
from fedrecgel.data.federation import ClientBatch, Federation
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.engine.store import ClientStore
from fedrecgel.methods.base import Download, Method, Problem, Server
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from tests.oracles import fedrecgel as oracle

SMALL: dict[str, Any] = {"gmf_dim": 4, "mlp_dim": 8, "fraction": 0.7, "chunk": 16}
N_ITEMS, ROUNDS, TOLERANCE = 130, 4, 1e-12


@pytest.fixture(scope="module")
def split() -> Split:
    """Ragged clients of 5 to 24 items in a catalogue so small that negatives repeat."""
    generator = np.random.default_rng(0)
    sizes = [5, 24, 6, 9, 13, 5, 20, 7, 11, 8]
    users = np.repeat(np.arange(len(sizes)), sizes)
    items = np.concatenate([generator.choice(N_ITEMS, size, replace=False) for size in sizes])
    items[-1] = N_ITEMS - 1
    frame = {"user": users, "item": items, "timestamp": generator.integers(0, 1000, len(users))}
    return Interactions.from_frame(frame).split(candidates=50)


def assert_close(found: Tensor, wanted: Tensor, what: str) -> None:
    scale = max(float(wanted.abs().max()), 1e-30)
    assert float((found - wanted).abs().max()) <= TOLERANCE * scale, what


def engine_for(method: Method, split: Split, chunk_examples: int = 256) -> tuple[LocalEngine, Server, Draws]:
    draws = Draws(3)
    federation = Federation(split, dtype=torch.float64)
    problem = Problem(split.n_users, split.n_items, torch.float64)
    store = ClientStore(method, problem, draws)
    settings = LocalSettings(chunk_examples=chunk_examples)
    engine = LocalEngine(method, federation, Plain(), store, draws, settings)
    server = method.init_server(problem, draws)
    # At the initial N(0, 0.01²) everything is nearly linear; larger tables test all of the mathematics.
    shared = {name: value * (30 if name.startswith("item") else 1) for name, value in server.shared.items()}
    return engine, replace(server, shared=shared), draws


def examples_of(batch: ClientBatch, row: int) -> tuple[Tensor, Tensor]:
    length = int(batch.mask[row].sum())
    return batch.items[row, :length], batch.labels[row, :length]


VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "wide": {"rho_co": 0.5, "rho_ur": 0.3},
    "without-shared": {"rho_co": 0.0},
    "without-private": {"rho_ur": 0.0},
    "user-first": {"order": "user-first", "rho_co": 0.1, "rho_ur": 0.1},
    "plain-steps": {"user_optimiser": "sgd", "server_optimiser": "sgd", "server_lr": 0.5},
    "mean": {"reduction": "mean"},
    "weighted": {"weighting": "examples"},
    "g-norm": {**FedRecGEL.variants["paper"], "g_norm": 0.01},
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("chunk_examples", [1, 256])
def test_equals_one_client_at_a_time(split: Split, name: str, chunk_examples: int) -> None:
    method = FedRecGEL(**SMALL, **VARIANTS[name])
    engine, server, draws = engine_for(method, split, chunk_examples)
    initial = engine.store.read(engine.population())["user"]
    clients = [oracle.Client(nn.Parameter(user.clone())).attach(method) for user in initial]
    parameters = {key: nn.Parameter(value.clone()) for key, value in server.shared.items()}
    kind = torch.optim.Adam if method.server_optimiser == "adam" else torch.optim.SGD
    optimiser = kind(parameters.values(), lr=method.server_lr)
    repeated = 0
    for t in range(ROUNDS):
        cohort = method.cohort(server, engine.population(), t, draws)
        shared = {key: value.detach() for key, value in parameters.items()}
        sums = {key: torch.zeros_like(value) for key, value in shared.items()}
        weights = 0.0
        for client in cohort.tolist():
            items, labels = examples_of(engine.federation.batch(torch.tensor([client]), t, draws), 0)
            repeated += len(items) - len(set(items.tolist()))
            decay = float(_decay(method, shared, clients[client].user.detach(), len(items)))
            sent = oracle.client_update(method, clients[client], shared, items, labels, decay)
            weight = len(items) if method.weighting == "examples" else 1
            weights += weight
            for key, value in sent.items():
                sums[key] += weight * value

        trained = engine.train(server, cohort, t)
        mean = trained.inbox.mean()
        for key, total in sums.items():
            parameters[key].grad = total / weights
            batched = mean[key] + mean["g_norm"] * server.shared[key] if method.g_norm else mean[key]
            assert_close(batched, total / weights, f"round {t}: gradient of {key}")
        optimiser.step()
        server = method.server_update(server, trained.inbox, t, draws)
        for key, parameter in parameters.items():
            assert_close(server.shared[key], parameter.detach(), f"round {t}: {key}")
        for number, user in enumerate(engine.store.read(engine.population())["user"]):
            assert_close(user, clients[number].user.detach(), f"round {t}: client {number}")
    assert repeated > 0, "the catalogue should be small enough for repeated negatives"


def _decay(method: FedRecGEL, shared: dict[str, Tensor], user: Tensor, n_records: int) -> Tensor:
    """c with ∇f = c θ by automatic differentiation of Eq. 8 at the client's whole parameter vector."""
    if method.g_norm == 0:
        return torch.tensor(0.0)
    theta = torch.cat([*(value.flatten() for value in shared.values()), user]).requires_grad_()
    n_shared, n_private = len(theta) - len(user), len(user)
    t = 0.5 * np.log(n_records)
    limits = [
        rho / np.sqrt(2 * t + size + 2 * np.sqrt(size * t))
        for rho, size in ((method.rho_co, n_shared), (method.rho_ur, n_private))
    ]
    spread = torch.log(1 + theta.square().sum() / (len(theta) * min(limits) ** 2))
    regulariser = (len(theta) / 2) * spread / np.sqrt(n_records)
    (gradient,) = torch.autograd.grad(regulariser, theta)
    return method.g_norm * (gradient @ theta.detach()) / theta.detach().square().sum()


def test_fedncf_is_fedrecgel_with_zero_radii(split: Split) -> None:
    servers, users = [], []
    for method in (FedNCF(**SMALL), FedRecGEL(**SMALL, rho_co=0, rho_ur=0)):
        engine, server, draws = engine_for(method, split)
        for t in range(ROUNDS):
            cohort = method.cohort(server, engine.population(), t, draws)
            server = method.server_update(server, engine.train(server, cohort, t).inbox, t, draws)
        servers.append(server.shared)
        users.append(engine.store.read(engine.population())["user"])
    assert all(torch.equal(servers[0][name], servers[1][name]) for name in servers[0])
    assert torch.equal(users[0], users[1])


@pytest.mark.parametrize("zero", ["no examples", "no output weights"])
def test_a_client_without_gradient(split: Split, zero: str) -> None:
    """A zero gradient leaves the point where it is; the other clients of the batch do not notice."""
    method = FedRecGEL(**SMALL, rho_co=0.3, rho_ur=0.2)
    engine, server, draws = engine_for(method, split)
    ids = torch.arange(4)
    batch = engine.federation.batch(ids, 0, draws)
    if zero == "no examples":
        batch = replace(batch, mask=batch.mask & (ids != 2)[:, None], row_mask=batch.row_mask & (ids != 2)[:, None])
    else:
        shared = {name: value * (not name.startswith("out_")) for name, value in server.shared.items()}
        server = replace(server, shared=shared)
    private = engine.store.read(ids)
    result = method.client_update(private, Download(server.shared), batch, 0, draws)
    total = add_up([result.upload], split.n_items, method.server_needs).total()
    sums = {name: torch.zeros_like(value) for name, value in server.shared.items()}
    for row in range(len(ids)):
        client = oracle.Client(nn.Parameter(private["user"][row].clone())).attach(method)
        sent = oracle.client_update(method, client, server.shared, *examples_of(batch, row))
        assert_close(result.private["user"][row], client.user.detach(), f"client {row}")
        for name, value in sent.items():
            sums[name] += value
    for name, value in sums.items():
        assert torch.isfinite(total[name]).all()
        assert_close(total[name], value, name)


def test_float32_is_close(split: Split) -> None:
    """The same round in single precision, to 1e-5 of the largest entry."""
    means = []
    for dtype in (torch.float32, torch.float64):
        method = FedRecGEL(**SMALL)
        draws, problem = Draws(3), Problem(split.n_users, split.n_items, dtype)
        store = ClientStore(method, problem, draws)
        engine = LocalEngine(method, Federation(split, dtype=dtype), Plain(), store, draws)
        means.append(engine.train(method.init_server(problem, draws), engine.population(), 0).inbox.mean())
    for name, value in means[1].items():
        assert float((means[0][name] - value).abs().max()) <= 1e-5 * float(value.abs().max()), name
