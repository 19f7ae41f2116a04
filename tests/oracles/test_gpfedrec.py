"""Batched GPFedRec equals a loop over clients with whole tables and one differentiated loss, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrecgel.data.split import Split
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.errors import ConfigError
from fedrecgel.methods import gpfedrec as module
from fedrecgel.methods.base import Server
from fedrecgel.methods.gpfedrec import NO_GUIDE, GPFedRec
from fedrecgel.tables import State
from tests.builders import engine_of, problem_of
from tests.oracles import gpfedrec as oracle
from tests.oracles.single import assert_close, batches_of, catalogue_scores, ragged_split

SMALL: dict[str, Any] = {"dim": 4, "layers": (6, 5, 3), "fraction": 0.3, "lr_eta": 3.0}
ROUNDS, SEED = 4, 3
VARIANTS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "native": {**GPFedRec.variants["native"]},
    "everyone": {"fraction": 1.0, "lr_eta": 80.0},
    "everyone-native": {"fraction": 1.0, **GPFedRec.variants["native"]},
    "several-batches": {"batch_size": 16, "epochs": 2},
    "strong-pull": {"batch_size": 32, "reg": 5.0},
    "no-pull": {"reg": 0.0},
    "neighbours": {"neighbours": 2},
    "native-neighbours": {"neighbours": 2, "native_cosine_distance": True},
    "more-neighbours-than-clients": {"neighbours": 50},
    "threshold": {"threshold": 1.2, "fraction": 0.7},
    "nobody-above": {"threshold": 9.0},
    "hops": {"hops": 2, "threshold": 1.05, "fraction": 0.7},
    "centred": {"centred": True, "fraction": 0.7, "batch_size": 16},
    "noise": {"noise": 0.3, "batch_size": 16},
    "saturated": {"layers": (6,), "lr": 1.0, "lr_eta": 80.0},
    "plain-bce": {"layers": (6,), "lr": 1.0, "lr_eta": 80.0, "saturating_bce": False},
}


@pytest.fixture(scope="module")
def split() -> Split:
    return ragged_split()


def client_of(method: GPFedRec, state: State, row: int) -> oracle.Client:
    """The device of the oracle with the tensors of the method."""
    network = oracle.Network(method.dim, method.layers)
    with torch.no_grad():
        for number, layer in enumerate([*network.hidden, network.last]):
            assert isinstance(layer, nn.Linear)
            layer.weight.copy_(state[f"w{number}"][row].T)
            layer.bias.copy_(state[f"b{number}"][row])
    return oracle.Client(nn.Parameter(state["user"][row].clone()), network)


def assert_same_device(method: GPFedRec, state: State, row: int, client: oracle.Client, what: str) -> None:
    assert_close(state["user"][row], client.user, f"{what}: user")
    for number, layer in enumerate([*client.network.hidden, client.network.last]):
        assert isinstance(layer, nn.Linear)
        assert_close(state[f"w{number}"][row], layer.weight.T, f"{what}: weight {number}")
        assert_close(state[f"b{number}"][row], layer.bias, f"{what}: bias {number}")
    assert bool(state["trained"][row] > 0) == (client.table is not None), what
    if client.table is not None:
        assert_close(state["items"][row], client.table, f"{what}: table")


def noise_of(method: GPFedRec, engine: LocalEngine, client: int, t: int) -> Tensor:
    """The noise one client adds to its table, which is an input."""
    size = engine.federation.n_items * method.dim
    noise = engine.draws.laplace("noise", t, torch.tensor([client]).numpy(), size)
    return method.noise * torch.from_numpy(noise).view(-1, method.dim)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("chunk_examples", [1, 4096])
def test_equals_one_client_at_a_time(split: Split, name: str, chunk_examples: int) -> None:
    method = GPFedRec(**{**SMALL, **VARIANTS[name]})
    engine = engine_of(method, split, seed=SEED, local=LocalSettings(chunk_examples=chunk_examples))
    server = method.init_server(problem_of(split), engine.draws)
    initial = engine.store.read(engine.population())
    clients = [client_of(method, initial, row) for row in range(split.n_users)]
    items, seen, n_batches = server.shared["items"], set(), set()
    for t in range(ROUNDS):
        cohort = method.cohort(server, engine.population(), t, engine.draws)
        uploads, losses = [], []
        for number in cohort.tolist():
            batches = batches_of(engine, number, t, method.batch_size, method.epochs)
            found = oracle.client_update(method, clients[number], items, batches)
            losses.append(sum(found) / len(found))
            table = clients[number].table
            assert table is not None
            uploads.append(table + noise_of(method, engine, number, t) if method.noise else table)
            n_batches.add(len(batches))
            seen.add(number)
        items = oracle.server_update(method, clients, cohort.tolist(), uploads, items)

        trained = engine.train(server, cohort, t)
        assert_close(trained.loss, torch.tensor(losses, dtype=torch.float64).mean(), f"round {t}: loss")
        server = method.server_update(server, trained.inbox, t, engine.draws)
        assert_close(server.shared["items"], items, f"round {t}: global table")
        state, scores = engine.store.read(engine.population()), catalogue_scores(engine, server)
        for number, client in enumerate(clients):
            what = f"round {t}, client {number}"
            assert_same_device(method, state, number, client, what)
            place = int(server.kept["guide_of"][number])
            assert (place != NO_GUIDE) == (client.guide is not None), what
            if client.guide is not None:
                assert_close(server.kept["guides"][place], client.guide, f"{what}: guide")
            assert_close(scores[number], client.score(items), f"{what}: scores")
    assert method.fraction > 0.5 or len(seen) < split.n_users, "somebody should never have taken part"
    assert method.batch_size > 32 or len(n_batches) > 1, "some should have run out of batches before others"


def test_the_variants_are_not_vacuous(split: Split) -> None:
    """Every option changes the result, so agreement with the oracle means something."""
    tables = {}
    for name, options in VARIANTS.items():
        method = GPFedRec(**{**SMALL, "fraction": 0.7, **options})
        engine = engine_of(method, split, seed=SEED)
        server = method.init_server(problem_of(split), engine.draws)
        for t in range(ROUNDS):
            cohort = method.cohort(server, engine.population(), t, engine.draws)
            server = method.server_update(server, engine.train(server, cohort, t).inbox, t, engine.draws)
        tables[name] = server.shared["items"]
    for name, table in tables.items():
        base = tables["saturated" if name == "plain-bce" else "corrected"]
        assert name == "corrected" or not torch.allclose(base, table), name


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_what_leaves_the_device_is_the_table(split: Split, noise: float) -> None:
    """From the upload and what the server sent, the server gets exactly the noised table; names say nothing else."""
    method = GPFedRec(**SMALL, noise=noise)
    engine = engine_of(method, split, seed=SEED)
    server = method.init_server(problem_of(split), engine.draws)
    for t in range(3):
        cohort = method.cohort(server, engine.population(), t, engine.draws)
        inbox = engine.train(server, cohort, t).inbox
        for upload in inbox.each():
            assert {*upload.dense, *upload.rows} <= method.leaves_device()
            if noise:  # beside a noised table nothing may stand without noise
                assert not torch.as_tensor(upload.dense["pull"]).any()
                assert upload.at.shape[1] == split.n_items
        server = method.server_update(server, inbox, t, engine.draws)


@pytest.mark.parametrize("options", [{}, {"noise": 0.1, "hops": 2}, {"graph": "scalable", "neighbours": 3}])
def test_blocks_of_items_change_nothing(split: Split, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    """The server works through the catalogue in blocks that fit its memory."""
    method = GPFedRec(**{**SMALL, "fraction": 0.7, **options})
    guides = []
    for block in (1, 700, module.BLOCK):
        monkeypatch.setattr(module, "BLOCK", block)
        engine = engine_of(method, split, seed=SEED)
        server = method.init_server(problem_of(split), engine.draws)
        for t in range(2):
            cohort = method.cohort(server, engine.population(), t, engine.draws)
            server = method.server_update(server, engine.train(server, cohort, t).inbox, t, engine.draws)
        guides.append(server.kept["guides"])
    for found in guides[1:]:
        assert_close(found, guides[0], "guides")


def run_of(method: GPFedRec, split: Split, dtype: torch.dtype = torch.float64) -> tuple[Server, Tensor]:
    engine = engine_of(method, split, seed=SEED, dtype=dtype)
    server = method.init_server(problem_of(split, dtype), engine.draws)
    for t in range(ROUNDS):
        cohort = method.cohort(server, engine.population(), t, engine.draws)
        server = method.server_update(server, engine.train(server, cohort, t).inbox, t, engine.draws)
    return server, catalogue_scores(engine, server)


def test_16_bits_are_close_and_labelled(split: Split) -> None:
    """Tables of half the size: within their precision of the exact run, the same bits each time."""
    method = GPFedRec(**SMALL, neighbours=10)  # all participants, so that rounding cannot change the graph
    exact, (server, scores) = run_of(method, split), run_of(replace(method, storage="bfloat16"), split)
    assert server.kept["guides"].dtype == torch.bfloat16
    assert 0 < float((scores - exact[1]).abs().max()) < 0.05 * float(exact[1].abs().max())
    again = run_of(replace(method, storage="bfloat16"), split)
    assert torch.equal(again[1], scores)
    assert torch.equal(again[0].kept["guides"], server.kept["guides"])


def test_the_scalable_graph_is_deterministic_and_labelled(split: Split) -> None:
    method = GPFedRec(**{**SMALL, "fraction": 0.9}, graph="scalable", neighbours=2, projection=64)
    (first, _), (second, _) = run_of(method, split), run_of(method, split)
    assert torch.equal(first.kept["guides"], second.kept["guides"])
    with pytest.raises(ConfigError, match="neighbours"):
        GPFedRec(graph="scalable")
    # With as many neighbours as participants nothing depends on the projection, so it is the exact mode.
    everyone = replace(method, neighbours=12)
    exact, _ = run_of(replace(everyone, graph="exact"), split)
    assert_close(run_of(everyone, split)[0].kept["guides"], exact.kept["guides"], "guides")
