"""CoFedRec for one client at a time: whole tables, the contrastive term as its n × n formula, loops over users."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedrecgel.methods.cofedrec import CoFedRec
from tests.oracles.single import Batch, mean_bce


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
    method: CoFedRec, client: Client, labels: Tensor | None, batches: list[Batch], anchors: list[Tensor] | None = None
) -> list[float]:
    """Per batch: SGD on (w, b); then, the loss computed anew, SGD on the whole table."""
    n = len(client.table)
    layer_step = torch.optim.SGD(client.layer.parameters(), lr=method.lr)
    table_step = torch.optim.SGD([client.table], lr=method.lr * n * method.lr_eta)
    losses = []
    for number, batch in enumerate(batches):
        chosen = None if anchors is None else anchors[number]
        loss = local_loss(method, client, labels, batch, chosen)
        losses.append(float(loss.detach()))
        step(layer_step, loss)
        step(table_step, local_loss(method, client, labels, batch, chosen))
    return losses


def local_loss(method: CoFedRec, client: Client, labels: Tensor | None, batch: Batch, anchors: Tensor | None) -> Tensor:
    """Mean bce + reg · SupCon, once there are labels."""
    loss = mean_bce(client.logits(batch.items), batch, method.saturating_bce)
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
