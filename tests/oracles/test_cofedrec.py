"""Batched CoFedRec equals a loop over clients with whole tables and differentiated losses, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.methods.base import Server
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.numerics.cluster import kmeans
from fedrecgel.tables import NO_TABLE, State
from tests.builders import engine_of, problem_of
from tests.oracles import cofedrec as oracle
from tests.oracles.single import assert_close, batches_of, catalogue_scores, ragged_split

SMALL: dict[str, Any] = {"dim": 4, "fraction": 0.3, "lr_eta": 0.5, "clusters": 4, "restarts": 2, "reg": 0.1}
ROUNDS, SEED = 4, 3
VARIANTS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "native": {**CoFedRec.variants["native"], "reg": 0.005},
    "several-batches": {"batch_size": 16, "epochs": 2},
    "everyone": {"fraction": 1.0},
    "most": {"fraction": 0.7, "batch_size": 32},
    "without-contrast": {"reg": 0.0},
    "warm": {"temperature": 0.7, "base_temperature": 0.2},
    "anchors": {"anchors": 7, "batch_size": 32},
    "more-anchors-than-items": {"anchors": 1000},
    "one-cluster": {"clusters": 1},
    "singletons": {"clusters": 50},
    "saturated": {"lr": 0.3, "lr_eta": 80.0, "batch_size": 16, "reg": 0.005},
    "plain-bce": {"lr": 0.3, "lr_eta": 80.0, "batch_size": 16, "reg": 0.005, "saturating_bce": False},
}


@pytest.fixture(scope="module")
def split() -> Split:
    return ragged_split()


def client_of(state: State, row: int) -> oracle.Client:
    """The device of the oracle with the tensors of the method."""
    layer = nn.Linear(state["w"].shape[1], 1, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(state["w"][row][None])
        layer.bias.copy_(state["b"][row])
    return oracle.Client(layer, nn.Parameter(state["items"][row].clone()))


def anchors_of(method: CoFedRec, n_items: int, t: int, draws: Draws) -> Tensor | None:
    """The rows the contrastive term is taken over, which are an input."""
    if not 0 < method.anchors < n_items:
        return None
    return torch.from_numpy(draws.generator("anchors", t).choice(n_items, method.anchors, replace=False))


def leader_of(mean: Tensor, method: CoFedRec, cohort: list[int], t: int, draws: Draws) -> tuple[Tensor, int, list[int]]:
    """Labels of the items, the leading client and the items it is compared on: inputs, drawn as the method draws."""
    generator = draws.generator("groups", t)
    labels = kmeans(mean, method.clusters, generator, method.restarts).labels
    client, cluster = generator.random(2)
    names = sorted(set(labels.tolist()))
    chosen = names[int(cluster * len(names))]
    return labels, sorted(cohort)[int(client * len(cohort))], (labels == chosen).nonzero()[:, 0].tolist()


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("chunk_examples", [1, 40])
def test_equals_one_client_at_a_time(split: Split, name: str, chunk_examples: int) -> None:
    method = CoFedRec(**{**SMALL, **VARIANTS[name]})
    engine = engine_of(method, split, seed=SEED, local=LocalSettings(chunk_examples=chunk_examples))
    server = method.init_server(problem_of(split), engine.draws)
    initial = engine.store.read(engine.population())
    clients = [client_of(initial, row) for row in range(split.n_users)]
    labels: Tensor | None = None
    seen, sizes, n_batches = set(), [], set()
    for t in range(ROUNDS):
        cohort = method.cohort(server, engine.population(), t, engine.draws).tolist()
        anchors = anchors_of(method, split.n_items, t, engine.draws)
        losses = []
        for number in cohort:
            batches = batches_of(engine, number, t, method.batch_size, method.epochs)
            chosen = None if anchors is None else [anchors] * len(batches)
            found = oracle.client_update(method, clients[number], labels, batches, chosen)
            losses.append(sum(found) / len(found))
            n_batches.add(len(batches))
        tables = {number: clients[number].table.detach() for number in cohort}

        trained = engine.train(server, torch.tensor(cohort), t)
        assert_close(trained.loss, torch.tensor(losses, dtype=torch.float64).mean(), f"round {t}: loss")
        mean = torch.stack(list(tables.values())).mean(0)
        assert_close(trained.inbox.mean()["items"], mean, f"round {t}: mean table")
        labels, leader, items = leader_of(trained.inbox.mean()["items"], method, cohort, t, engine.draws)
        group = oracle.group_of(tables, leader, items)
        group_mean = oracle.server_update(clients, group, tables)

        server = method.server_update(server, trained.inbox, t, engine.draws)
        assert torch.equal(server.shared["labels"], labels)
        assert members_of(server, group[0]) == sorted(group), f"round {t}"
        assert_close(server.shared["groups"][server.shared["group_of"][leader]], group_mean, f"round {t}: group")
        state, scores = engine.store.read(engine.population()), catalogue_scores(engine, server)
        for number, client in enumerate(clients):
            what = f"round {t}, client {number}"
            assert_close(state["w"][number], client.layer.weight[0], f"{what}: w")
            assert_close(state["b"][number], client.layer.bias[0], f"{what}: b")
            assert_close(table_in_use(server, state, number), client.table, f"{what}: table")
            assert_close(scores[number], client.score(), f"{what}: scores")
        seen.update(cohort)
        sizes.append(len(group))
    assert method.fraction > 0.5 or len(seen) < split.n_users, "somebody should never have taken part"
    assert method.batch_size > 32 or len(n_batches) > 1, "some should have run out of batches before others"
    assert max(sizes) > 1, "some group should have several members"


def members_of(server: Server, client: int) -> list[int]:
    """Everyone in a client's group."""
    group_of = server.shared["group_of"]
    assert group_of[client] != NO_TABLE
    members: list[int] = (group_of == group_of[client]).nonzero()[:, 0].tolist()
    return members


def table_in_use(server: Server, state: State, client: int) -> Tensor:
    """What a client trains and scores with: its group's table if it is newer than its own."""
    group = int(server.shared["group_of"][client])
    return state["items"][client] if group == NO_TABLE else server.shared["groups"][group]


def run_of(method: CoFedRec, split: Split) -> tuple[LocalEngine, Server]:
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
        scores[name] = catalogue_scores(*run_of(CoFedRec(**{**SMALL, **options}), split))
    for name, found in scores.items():
        base = scores["saturated" if name == "plain-bce" else "corrected"]
        equal = name in ("corrected", "more-anchors-than-items")
        assert torch.allclose(base, found) == equal, name


def test_only_the_table_leaves_the_device(split: Split) -> None:
    method = CoFedRec(**SMALL)
    engine = engine_of(method, split, seed=SEED)
    server = method.init_server(problem_of(split), engine.draws)
    for upload in engine.train(server, engine.population(), 0).inbox.each():
        assert upload.dense.keys() == {"items"} == method.leaves_device()
        assert upload.at.numel() == 0, "whole tables need no list of the rows a client touched"


def test_a_group_waits_for_a_member_that_sleeps(split: Split) -> None:
    """Only members receive a table; who trained on it keeps the result and no longer receives it."""
    engine, server = run_of(CoFedRec(**SMALL), split)
    down = engine.method.broadcast(server, engine.population())
    assert down.shared.keys() == {"labels"}, "neither the mean table nor other groups' are sent"
    waiting = (server.shared["group_of"] != NO_TABLE).nonzero()[:, 0]
    assert len(server.shared["groups"]) > 1
    later = engine.method.server_update(server, engine.train(server, waiting, ROUNDS).inbox, ROUNDS, engine.draws)
    assert len(later.shared["groups"]) == 1, "groups that nobody waits for are forgotten"


def test_16_bits_are_close_and_labelled(split: Split) -> None:
    """Tables of half the size: within their precision of the exact run, the same bits each time."""
    method = CoFedRec(**SMALL, storage="bfloat16")
    (engine, server), (again, second) = run_of(method, split), run_of(method, split)
    assert engine.store.read(engine.population())["items"].dtype == torch.bfloat16
    assert server.shared["groups"].dtype == torch.bfloat16
    assert torch.equal(catalogue_scores(engine, server), catalogue_scores(again, second))
    # Rounding may move the elbow, so the precision is that of one round of training.
    private = []
    for kind in (method, replace(method, storage="full")):
        engine = engine_of(kind, split, seed=SEED)
        engine.train(kind.init_server(problem_of(split), engine.draws), engine.population(), 0)
        private.append(engine.store.read(engine.population()))
    assert_close(private[0]["items"].double(), private[1]["items"], "16 bits", tolerance=0.02)
    assert_close(private[0]["w"], private[1]["w"], "score function", tolerance=0.02)
