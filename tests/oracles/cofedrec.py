"""CoFedRec for one client at a time: whole tables, the contrastive term as its n × n formula, loops over users."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedrecgel.draws import Draws
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.methods.messages import Server
from fedrecgel.numerics.cluster import kmeans
from fedrecgel.tables import NO_TABLE, State
from fedrecgel.tensors import Tensors
from tests.oracles.plain import Devices, Examples, Oracle, layer_of, mean_bce, score_function


@dataclass
class Client:
    """One device: s_j = w · e_j + b with a table of its own."""

    layer: nn.Linear
    table: nn.Parameter

    def logits(self, items: Tensor) -> Tensor:
        scores: Tensor = self.layer(self.table[items])
        return scores.squeeze(1)

    def score(self) -> Tensor:
        """Logits of all items."""
        with torch.no_grad():
            return self.logits(torch.arange(len(self.table)))


def supervised_contrast(
    table: Tensor, labels: Tensor, temperature: float, base: float, anchors: Tensor | None = None
) -> Tensor:
    """Mean over anchors i of -(τ/τ_b) Σ_{same label} (a_ij - log(Σ_{k≠i} e^{a_ik} + 1e-6)) / (#same + 1e-6)."""
    z = table / table.norm(dim=1, keepdim=True)
    oneself = torch.eye(len(table), dtype=torch.bool)
    same = (labels[:, None] == labels[None, :]) & ~oneself
    a = (z @ z.T / temperature).masked_fill(oneself, -torch.inf)
    a = a - a.max(dim=1, keepdim=True).values.detach()
    log_sum = torch.log(a.exp().sum(1) + 1e-6)
    gaps = torch.where(same, a - log_sum[:, None], 0).sum(1)
    terms = -(temperature / base) * gaps / (same.sum(1).double() + 1e-6)
    return (terms if anchors is None else terms[anchors]).mean()


def client_update(
    method: CoFedRec, client: Client, labels: Tensor | None, batches: list[Examples], anchors: Tensor | None
) -> list[float]:
    """Per batch: SGD on (w, b); then, the loss computed anew, SGD on the whole table."""
    n = len(client.table)
    layer_step = torch.optim.SGD(client.layer.parameters(), lr=method.lr)
    table_step = torch.optim.SGD([client.table], lr=method.lr * n * method.lr_eta)
    losses = []
    for batch in batches:
        loss = local_loss(method, client, labels, batch, anchors)
        losses.append(float(loss.detach()))
        step(layer_step, loss)
        step(table_step, local_loss(method, client, labels, batch, anchors))
    return losses


def local_loss(
    method: CoFedRec, client: Client, labels: Tensor | None, batch: Examples, anchors: Tensor | None
) -> Tensor:
    """Mean bce + reg · SupCon, once there are labels."""
    loss = mean_bce(client.logits(batch[0]), batch[1], saturating=method.saturating_bce)
    if labels is None:
        return loss
    term = supervised_contrast(client.table, labels, method.temperature, method.base_temperature, anchors)
    return loss + method.reg * term


def step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step on the tensors of this optimiser only."""
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def group_of(tables: dict[int, Tensor], leader: int, items: list[int]) -> list[int]:
    """Participants in descending similarity to the leader on some items, up to and with the elbow."""
    own = tables[leader]

    def similarity(user: int) -> float:
        other = tables[user]
        return sum(float(own[j] @ other[j] / (own[j].norm() * other[j].norm())) for j in items)

    ranked = sorted(tables, key=similarity, reverse=True)
    curve = [similarity(user) for user in ranked]
    return ranked[: elbow(curve) + 1]


def elbow(curve: list[float]) -> int:
    """Index with the largest perpendicular distance to the line from the first to the last point (rank, value)."""
    (x0, y0), (x1, y1) = (0.0, curve[0]), (len(curve) - 1.0, curve[-1])
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    if length == 0:
        return 0
    far = [abs((x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0)) / length for x, y in enumerate(curve)]
    return max(range(len(curve)), key=lambda i: far[i])


def server_update(clients: list[Client], group: list[int], tables: dict[int, Tensor]) -> Tensor:
    """The members of the group get its mean table; nobody else gets anything."""
    mean = torch.stack([tables[user] for user in group]).mean(0)
    for user in group:
        clients[user].table = nn.Parameter(mean.clone())
    return mean


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


class CoFedRecOracle(Oracle):
    """Layers and tables on the devices; the server labels items and gives one group its mean table."""

    def __init__(self, method: CoFedRec, shared: Tensors, state: State) -> None:
        self.method = method
        self.clients = [
            Client(layer_of(w[None], b), nn.Parameter(table.clone()))
            for w, b, table in zip(state["w"], state["b"], state["items"], strict=True)
        ]
        self.shared = {}
        self.group: list[int] = []
        self.group_sizes: list[int] = []
        self.batch_counts: set[int] = set()

    def train(self, cohort: list[int], devices: Devices, round: int) -> float:
        """Clients first, then a leader and who is like it."""
        method, draws = self.method, devices.draws
        anchors = anchors_of(method, devices.federation.n_items, round, draws)
        losses = []
        for number in cohort:
            batches = devices.epochs(number, round, method.batch_size, method.epochs)
            found = client_update(method, self.clients[number], self.shared.get("labels"), batches, anchors)
            losses.append(sum(found) / len(found))
            self.batch_counts.add(len(batches))
        tables = {number: self.clients[number].table.detach() for number in cohort}
        mean = torch.stack(list(tables.values())).mean(0)
        self.shared["labels"], leader, items = leader_of(mean, method, cohort, round, draws)
        self.group = group_of(tables, leader, items)
        self.group_sizes.append(len(self.group))
        server_update(self.clients, self.group, tables)
        return sum(losses) / len(losses)

    def private(self, client: int) -> Tensors:
        """The layer; which table is in use the server knows."""
        return score_function(self.clients[client].layer)

    def scores(self, client: int) -> Tensor:
        """With the table in use."""
        return self.clients[client].score()

    def more(self, server: Server, state: State) -> dict[str, tuple[Tensor, Tensor]]:
        """The newest group, and the table each client trains and scores with: its group's if newer than its own."""
        group_of, own = server.shared["group_of"], state["items"]
        members = (group_of == group_of[self.group[0]]).nonzero()[:, 0]
        assert group_of[self.group[0]] != NO_TABLE
        found = {"members of the group": (members, torch.tensor(sorted(self.group)))}
        for number, client in enumerate(self.clients):
            place = int(group_of[number])
            table = own[number] if place == NO_TABLE else server.shared["groups"][place]
            found[f"table of client {number}"] = table, client.table.detach()
        return found
