"""PerFedRec for one client at a time: whole tables, the propagation as its formula, losses differentiated.

This is the corrected algorithm: clients send gradients, every model on the server has an Adam of its own, a user has
one vector, and the server learns the graph from who took part.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import permutations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from fedrecgel.methods.perfedrec import PerFedRec


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
