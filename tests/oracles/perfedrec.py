"""PerFedRec for one client at a time: whole tables, the propagation as its formula, losses differentiated.

This is the corrected algorithm: clients send gradients, every model on the server has an Adam of its own, a user has
one vector, and the server learns the graph from who took part.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from fedrecgel.methods.messages import Server
from fedrecgel.methods.perfedrec import GLOBAL, PerFedRec
from fedrecgel.numerics.cluster import kmeans
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors
from tests.oracles.plain import Devices, Oracle


@dataclass
class Client:
    """One device."""

    user: nn.Parameter
    optimiser: torch.optim.Adam
    rated: list[int] = field(default_factory=list)
    """Own training items, once the client has taken part."""
    local: Tensor | None = None
    """The whole table of the local model, until the next round."""


@dataclass
class Model:
    """An item table on the server and its optimiser."""

    table: nn.Parameter
    optimiser: torch.optim.Adam

    @classmethod
    def start(cls, method: PerFedRec, table: Tensor) -> Model:
        parameter = nn.Parameter(table.clone())
        return cls(parameter, torch.optim.Adam([parameter], lr=method.lr))


@dataclass
class Graph:
    """What the server knows of who rated what: the last vector and the items of each user that took part."""

    n_items: int
    users: dict[int, Tensor] = field(default_factory=dict)
    rated: dict[int, list[int]] = field(default_factory=dict)

    def neighbours(self, dim: int) -> tuple[Tensor, Tensor]:
        """N_j = Σ_{w rated j} u_w, and how many there are."""
        sums = torch.zeros(self.n_items, dim, dtype=torch.float64)
        degree = torch.zeros(self.n_items, dtype=torch.float64)
        for number, user in self.users.items():
            for item in self.rated[number]:
                sums[item] += user
                degree[item] += 1
        return sums, degree


def propagated(
    method: PerFedRec, user: Tensor, table: Tensor, rated: list[int], graph: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """û and all v̂; the released code smooths the own positives only, and less of the ego."""
    neighbours, degree = graph
    mean_user = (user + table[rated].sum(0)) / (len(rated) + 1)
    mean_items = (table + neighbours) / (degree + 1)[:, None]
    if method.propagation == "one-rule":
        return (user + mean_user) / 2, (table + mean_items) / 2
    positive = torch.zeros(len(table), 1, dtype=torch.bool)
    positive[rated] = True
    return (user + 3 * mean_user) / 4, torch.where(positive, (table + 3 * mean_items) / 4, table / 4)


def client_update(
    method: PerFedRec,
    client: Client,
    model: Tensor,
    rated: list[int],
    pairs: list[tuple[int, int]],
    graph: tuple[Tensor, Tensor],
) -> tuple[float, Tensor]:
    """BPR on this round's pairs: an Adam step on the user, the gradient of the item table, and the local model."""
    table = nn.Parameter(model.clone())
    u, v = propagated(method, client.user, table, rated, graph)
    better, worse = (list(side) for side in zip(*pairs, strict=True))
    stacked = torch.cat([u.expand(len(pairs), -1), v[better], v[worse]])
    loss = -logsigmoid((v[better] - v[worse]) @ u).mean() + method.decay * 0.5 * stacked.square().sum() / 1024
    client.optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    client.optimiser.step()
    gradient = table.grad
    assert gradient is not None
    torch.optim.Adam([table], lr=method.local_lr).step()
    client.local, client.rated = table.detach(), rated
    return float(loss.detach()), gradient


def server_update(method: PerFedRec, models: list[Model], labels: list[int], sent: dict[int, Tensor]) -> None:
    """Model 0 steps with everyone's mean gradient, model k with its cluster's; an idle one becomes model 0."""
    for number, model in enumerate(models):
        own = [gradient for client, gradient in sent.items() if number in (0, labels[client])]
        if own:
            model.table.grad = torch.stack(own).mean(0)
            model.optimiser.step()
        else:
            models[number] = copy.deepcopy(models[0])


def renumbered(labels: Tensor, centres: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """New clusters under the numbers of the old ones nearest to them, by trying every permutation."""
    distances = torch.cdist(centres, before)
    best = min(
        permutations(range(len(centres))),
        key=lambda order: sum(float(distances[new, old]) for new, old in enumerate(order)),
    )
    order = torch.tensor(best)
    return order[labels], centres[order.argsort()]


def score(
    method: PerFedRec, client: Client, tables: list[Tensor], graph: tuple[Tensor, Tensor], *, fresh: bool
) -> Tensor:
    """The mean of the scores under the given models and, right after training, the local one."""
    used = [*tables, client.local] if fresh and client.local is not None else tables
    scores = []
    with torch.no_grad():
        for table in used:
            u, v = client.user, table
            if method.propagation == "one-rule":
                u, v = propagated(method, u, v, client.rated, graph)  # type: ignore[assignment]
            scores.append(v @ u)
    return torch.stack(scores).mean(0)


def drawn_for(devices: Devices, client: int, t: int) -> tuple[list[int], list[tuple[int, int]]]:
    """One client's training items and its pairs of this round, which are inputs."""
    own = devices.federation.batch(torch.tensor([client]), t, devices.draws)
    better, worse, valid = own.triples(t, devices.draws)
    assert valid.all()
    rows: list[int] = own.rows[0].tolist()
    pairs = [(rows[b], rows[w]) for b, w in zip(better[0].tolist(), worse[0].tolist(), strict=True)]
    train = devices.federation.split.train
    rated: list[int] = train.items[train.ptr[client] : train.ptr[client + 1]].tolist()
    assert len(pairs) == len(rated)
    assert {b for b, _ in pairs} <= set(rated)
    assert not {w for _, w in pairs} & set(rated)
    return rated, pairs


def noise_of(method: PerFedRec, devices: Devices, client: int, t: int) -> Tensor:
    """The noise one client adds to its gradient, which is an input."""
    n_items, rows, who = devices.federation.n_items, method.noise_rows, np.array([client])
    chosen = (devices.draws.uniform("noise/item", t, who[:, None], np.arange(rows)[None]) * n_items).astype(int)[0]
    values = devices.draws.laplace("noise", t, who, rows * method.dim).reshape(rows, method.dim)
    table = torch.zeros(n_items, method.dim, dtype=torch.float64)
    for item, value in zip(chosen.tolist(), values, strict=True):
        table[item] += method.noise * torch.from_numpy(value)
    return table


class PerFedRecOracle(Oracle):
    """Users and local models on the devices; models, clusters and the graph on the server."""

    def __init__(self, method: PerFedRec, shared: Tensors, state: State) -> None:
        self.method = method
        self.clients = []
        for vector in state["user"]:
            user = nn.Parameter(vector.clone())
            self.clients.append(Client(user, torch.optim.Adam([user], lr=method.user_lr)))
        self.models = [Model.start(method, shared["models"][0]) for _ in range(method.clusters + 1)]
        self.graph = Graph(shared["models"].shape[1])
        self.labels = [GLOBAL] * len(self.clients)
        self.centres = torch.zeros(0, method.dim, dtype=torch.float64)
        self.fresh: set[int] = set()
        self.parted = False
        """Whether some cluster has left the global model."""

    @property
    def shared(self) -> Tensors:  # type: ignore[override]
        neighbours, degree = self.graph.neighbours(self.method.dim)
        models = torch.stack([model.table.detach() for model in self.models])
        return {
            "models": models,
            "neighbours": neighbours,
            "degree": degree[:, None],
            "label": torch.tensor(self.labels),
        }

    def train(self, cohort: list[int], devices: Devices, round: int) -> float:
        """Gradients of the cohort into every model, then clusters of all who ever took part."""
        method, known, sent, losses = self.method, self.graph.neighbours(self.method.dim), {}, []
        for number in cohort:
            client, (rated, pairs) = self.clients[number], drawn_for(devices, number, round)
            table = self.models[self.labels[number]].table.detach()
            loss, sent[number] = client_update(method, client, table, rated, pairs, known)
            if method.noise:
                sent[number] = sent[number] + noise_of(method, devices, number, round)
            self.graph.users[number], self.graph.rated[number] = client.user.detach().clone(), rated
            losses.append(loss)
        server_update(method, self.models, self.labels, sent)
        self.fresh = set(cohort)
        self.cluster(devices)
        self.parted |= any(not torch.allclose(model.table, self.models[0].table) for model in self.models)
        return sum(losses) / len(losses)

    def cluster(self, devices: Devices) -> None:
        """Label 1 … K of everyone who took part; k-means is an input, checked elsewhere."""
        known = sorted(self.graph.users)
        points = torch.stack([self.graph.users[number] for number in known])
        found = kmeans(points, self.method.clusters, devices.draws.generator("clusters"))
        numbers, centres = found.labels, found.centres
        if self.method.match_clusters and len(self.centres) == len(centres):
            numbers, centres = renumbered(numbers, centres, self.centres)
        self.labels, self.centres = [GLOBAL] * len(self.clients), centres
        for client, number in zip(known, numbers.tolist(), strict=True):
            self.labels[client] = number + 1

    def private(self, client: int) -> Tensors:
        """The vector, its Adam, and the own items once the client took part."""
        own = self.clients[client]
        kept = own.optimiser.state[own.user]
        moments = {"user_m": kept["exp_avg"], "user_v": kept["exp_avg_sq"]} if kept else {}
        steps = torch.tensor(int(kept.get("step", 0)))
        return {"user": own.user.detach(), "user_steps": steps, **moments}

    def scores(self, client: int) -> Tensor:
        """Global and cluster model, and right after training the local one."""
        tables = [self.models[model].table.detach() for model in sorted({GLOBAL, self.labels[client]})]
        graph = self.graph.neighbours(self.method.dim)
        return score(self.method, self.clients[client], tables, graph, fresh=client in self.fresh)

    def more(self, server: Server, state: State) -> dict[str, tuple[Tensor, Tensor]]:
        """Every model's Adam."""
        found = {}
        for number, model in enumerate(self.models):
            kept = model.optimiser.state[model.table]
            found[f"first moment {number}"] = server.kept["models.m"][number], kept["exp_avg"]
            found[f"second moment {number}"] = server.kept["models.v"][number], kept["exp_avg_sq"]
            found[f"steps {number}"] = server.kept["steps"][number].int(), torch.tensor(int(kept["step"])).int()
        return found
