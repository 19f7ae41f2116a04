"""Batched PerFedRec equals a loop over clients with whole tables and differentiated losses, in float64."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedrecgel.data.split import Split
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.methods.base import Server
from fedrecgel.methods.perfedrec import GLOBAL, PerFedRec
from fedrecgel.numerics.cluster import kmeans
from fedrecgel.tables import State
from tests.builders import engine_of, problem_of
from tests.oracles import perfedrec as oracle
from tests.oracles.single import assert_close, catalogue_scores, ragged_split

SMALL: dict[str, Any] = {"dim": 4, "fraction": 0.3, "clusters": 3}
ROUNDS, SEED = 4, 3
VARIANTS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "native": {**PerFedRec.variants["native"], "dim": 5, "noise_rows": 9},
    "native-propagation": {"propagation": "native"},
    "unmatched": {"match_clusters": False},
    "noise": {"noise": 0.3, "noise_rows": 12},
    "decay": {"decay": 20.0},
    "rates": {"lr": 0.2, "user_lr": 0.3, "local_lr": 0.5},
    "everyone": {"fraction": 1.0, "lr": 0.1},
    "one-cluster": {"clusters": 1, "lr": 0.1},
    "more-clusters-than-users": {"clusters": 7, "fraction": 0.3, "match_clusters": False},
}


@pytest.fixture(scope="module")
def split() -> Split:
    return ragged_split()


def drawn_for(engine: LocalEngine, client: int, t: int) -> tuple[list[int], list[tuple[int, int]]]:
    """One client's training items and its pairs of this round, which are inputs."""
    own = engine.federation.batch(torch.tensor([client]), t, engine.draws)
    better, worse, valid = own.triples(t, engine.draws)
    assert valid.all()
    rows: list[int] = own.rows[0].tolist()
    pairs = [(rows[b], rows[w]) for b, w in zip(better[0].tolist(), worse[0].tolist(), strict=True)]
    train = engine.federation.split.train
    rated: list[int] = train.items[train.ptr[client] : train.ptr[client + 1]].tolist()
    assert len(pairs) == len(rated)
    assert {b for b, _ in pairs} <= set(rated)
    assert not {w for _, w in pairs} & set(rated)
    return rated, pairs


def noise_of(method: PerFedRec, engine: LocalEngine, client: int, t: int) -> Tensor:
    """The noise one client adds to its gradient, which is an input."""
    n_items, rows, who = engine.federation.n_items, method.noise_rows, np.array([client])
    chosen = (engine.draws.uniform("noise/item", t, who[:, None], np.arange(rows)[None]) * n_items).astype(int)[0]
    values = engine.draws.laplace("noise", t, who, rows * method.dim).reshape(rows, method.dim)
    table = torch.zeros(n_items, method.dim, dtype=torch.float64)
    for item, value in zip(chosen.tolist(), values, strict=True):
        table[item] += method.noise * torch.from_numpy(value)
    return table


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("chunk_examples", [1, 4096])
def test_equals_one_client_at_a_time(split: Split, name: str, chunk_examples: int) -> None:
    method = PerFedRec(**{**SMALL, **VARIANTS[name]})
    engine = engine_of(method, split, seed=SEED, local=LocalSettings(chunk_examples=chunk_examples))
    server = method.init_server(problem_of(split), engine.draws)
    clients = []
    for vector in engine.store.read(engine.population())["user"]:
        user = nn.Parameter(vector.clone())
        clients.append(oracle.Client(user, torch.optim.Adam([user], lr=method.user_lr)))
    models = [oracle.Model.start(method, server.shared["models"][0]) for _ in range(method.clusters + 1)]
    graph, labels = oracle.Graph(split.n_items), [GLOBAL] * split.n_users
    centres = torch.zeros(0, method.dim, dtype=torch.float64)
    seen, parted = set(), False
    for t in range(ROUNDS):
        cohort = method.cohort(server, engine.population(), t, engine.draws)
        known, sent, losses = graph.neighbours(method.dim), {}, []
        for number in cohort.tolist():
            rated, pairs = drawn_for(engine, number, t)
            table = models[labels[number]].table.detach()
            loss, sent[number] = oracle.client_update(method, clients[number], table, rated, pairs, known)
            if method.noise:
                sent[number] = sent[number] + noise_of(method, engine, number, t)
            graph.users[number], graph.rated[number] = clients[number].user.detach().clone(), rated
            losses.append(loss)
        oracle.server_update(method, models, labels, sent)
        labels, centres = clustered(method, graph, centres, engine)

        trained = engine.train(server, cohort, t)
        assert_close(trained.loss, torch.tensor(losses, dtype=torch.float64).mean(), f"round {t}: loss")
        server = method.server_update(server, trained.inbox, t, engine.draws)
        assert_same_server(server, models, labels, graph.neighbours(method.dim), f"round {t}")
        state, scores = engine.store.read(engine.population()), catalogue_scores(engine, server)
        for number, client in enumerate(clients):
            what, fresh = f"round {t}, client {number}", number in sent
            assert_same_device(state, number, client, what)
            tables = [models[model].table.detach() for model in sorted({GLOBAL, labels[number]})]
            wanted = oracle.score(method, client, tables, graph.neighbours(method.dim), fresh=fresh)
            assert_close(scores[number], wanted, f"{what}: scores")
        seen.update(cohort.tolist())
        parted |= any(not torch.allclose(model.table, models[0].table) for model in models)
    assert method.fraction == 1 or len(seen) < split.n_users, "somebody should never have taken part"
    assert parted or method.clusters == 1, "some cluster should have left the global model"


def clustered(method: PerFedRec, graph: oracle.Graph, before: Tensor, engine: LocalEngine) -> tuple[list[int], Tensor]:
    """Label 1 … K of everyone who took part; k-means is an input, checked elsewhere."""
    known = sorted(graph.users)
    points = torch.stack([graph.users[number] for number in known])
    found = kmeans(points, method.clusters, engine.draws.generator("clusters"))
    numbers, centres = found.labels, found.centres
    if method.match_clusters and len(before) == len(centres):
        numbers, centres = oracle.renumbered(numbers, centres, before)
    labels = [GLOBAL] * engine.federation.n_clients
    for client, number in zip(known, numbers.tolist(), strict=True):
        labels[client] = number + 1
    return labels, centres


def assert_same_server(
    server: Server, models: list[oracle.Model], labels: list[int], graph: tuple[Tensor, Tensor], what: str
) -> None:
    for number, model in enumerate(models):
        assert_close(server.shared["models"][number], model.table, f"{what}: model {number}")
        kept = model.optimiser.state[model.table]
        assert_close(server.kept["models.m"][number], kept["exp_avg"], f"{what}: first moment {number}")
        assert_close(server.kept["models.v"][number], kept["exp_avg_sq"], f"{what}: second moment {number}")
        assert int(server.kept["steps"][number]) == int(kept["step"]), what
    assert server.shared["label"].tolist() == labels, what
    assert_close(server.shared["neighbours"], graph[0], f"{what}: neighbours")
    assert_close(server.shared["degree"][:, 0], graph[1], f"{what}: degree")


def assert_same_device(state: State, row: int, client: oracle.Client, what: str) -> None:
    assert_close(state["user"][row], client.user, f"{what}: user")
    kept = client.optimiser.state[client.user]
    assert int(state["user_steps"][row]) == int(kept.get("step", 0)), what
    if kept:
        assert_close(state["user_m"][row], kept["exp_avg"], f"{what}: first moment")
        assert_close(state["user_v"][row], kept["exp_avg_sq"], f"{what}: second moment")


def run_of(method: PerFedRec, split: Split) -> tuple[LocalEngine, Server]:
    engine = engine_of(method, split, seed=SEED)
    server = method.init_server(problem_of(split), engine.draws)
    for t in range(ROUNDS):
        cohort = method.cohort(server, engine.population(), t, engine.draws)
        server = method.server_update(server, engine.train(server, cohort, t).inbox, t, engine.draws)
    return engine, server


def test_the_variants_are_not_vacuous(split: Split) -> None:
    """Every option changes the result, so agreement with the oracle means something."""
    scores = {}
    for name, options in VARIANTS.items():
        scores[name] = catalogue_scores(*run_of(PerFedRec(**{**SMALL, "lr": 0.1, "user_lr": 0.1, **options}), split))
    for name, found in scores.items():
        assert name == "corrected" or not torch.allclose(scores["corrected"], found), name


def test_the_cohort_is_half_uniform_and_half_by_cluster_size(split: Split) -> None:
    """No one twice, the right number, everyone at times, and members of large clusters more often."""
    method = PerFedRec(dim=4, fraction=0.3)
    server = method.init_server(problem_of(split), engine_of(method, split).draws)
    server.shared["label"][:] = torch.tensor([1] * 11 + [2] * 3)
    drawn: Counter[int] = Counter()
    for t in range(400):
        cohort = method.cohort(server, torch.arange(14), t, engine_of(method, split).draws).tolist()
        assert len(cohort) == len(set(cohort)) == 4
        drawn.update(cohort)
    large, small = (np.mean([drawn[user] for user in users]) for users in (range(11), range(11, 14)))
    # Two of 14 uniformly, two draws with weights 11 and 3, rarely a duplicate that is replaced.
    chance = 400 * np.array([2 / 14 + 2 * 11 / (121 + 9), 2 / 14 + 2 * 3 / (121 + 9)])
    assert abs(large - chance[0]) < 0.1 * chance[0]
    assert abs(small - chance[1]) < 0.2 * chance[1]


def test_noise_is_not_in_the_local_model_and_nothing_else_is_sent(split: Split) -> None:
    """Uploads carry the declared names; noise falls on the gradient of items only."""
    uploads = []
    for noise in (0.0, 0.5):
        method = PerFedRec(**SMALL, noise=noise, noise_rows=5)
        engine = engine_of(method, split, seed=SEED)
        server = method.init_server(problem_of(split), engine.draws)
        inbox = engine.train(server, engine.population(), 0).inbox
        assert {*inbox.total()} == method.leaves_device()
        uploads.append((inbox.total(), engine.store.read(engine.population()).tables["local"].dense()))
    (clear, local), (noised, same_local) = uploads
    assert torch.equal(local, same_local)
    assert not torch.allclose(clear["items"], noised["items"])
    assert all(torch.equal(clear[name], noised[name]) for name in ("user", "neighbours", "degree"))
