"""GPFedRec for one client at a time: whole tables, one loss with the pull as a term of it, a dense graph."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fedrecgel.methods.gpfedrec import GPFedRec
from tests.oracles.single import Batch, mean_bce


class Network(nn.Module):
    """concat(u, e_j) through hidden layers with ReLU, then one number."""

    def __init__(self, dim: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        sizes = (2 * dim, *widths)
        layers = [nn.Linear(a, b, dtype=torch.float64) for a, b in pairwise(sizes)]
        self.hidden = nn.ModuleList(layers)
        self.last = nn.Linear(sizes[-1], 1, dtype=torch.float64)

    def forward(self, user: Tensor, items: Tensor) -> Tensor:
        """Logits of one user's items."""
        x = torch.cat([user.expand(len(items), -1), items], dim=1)
        for layer in self.hidden:
            x = torch.relu(layer(x))
        logits: Tensor = self.last(x)
        return logits.squeeze(1)


@dataclass
class Client:
    """One device, and what the server keeps for it."""

    user: nn.Parameter
    network: Network
    table: Tensor | None = None
    """E_u as local training left it; none before the first."""
    guide: Tensor | None = None
    """R_u; none before the first round the client took part in."""

    def score(self, global_table: Tensor) -> Tensor:
        """Logits of all items."""
        with torch.no_grad():
            scores: Tensor = self.network(self.user, global_table if self.table is None else self.table)
        return scores


def client_update(method: GPFedRec, client: Client, global_table: Tensor, batches: list[Batch]) -> list[float]:
    """L = mean bce + reg · mean (E - R_u)², simultaneous SGD steps on u, the network and E, from E = G."""
    n = len(global_table)
    table = nn.Parameter(global_table.clone())
    guide = global_table if client.guide is None else client.guide
    optimiser = torch.optim.SGD(
        [
            {"params": [client.user], "lr": method.lr * method.lr_eta / method.fraction - method.lr},
            {"params": [table], "lr": method.lr * n * method.lr_eta - method.lr},
            {"params": client.network.parameters(), "lr": method.lr},
        ]
    )
    losses = []
    for batch in batches:
        optimiser.zero_grad()
        logits = client.network(client.user, table[batch.items])
        fit = mean_bce(logits, batch, method.saturating_bce)
        pull = method.reg * (table - guide).square().mean()
        (fit + pull).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(fit.detach()))
    client.table = table.detach()
    return losses


def similarity(method: GPFedRec, uploads: list[Tensor], global_table: Tensor) -> Tensor:
    """Cosines of the flattened tables, by two loops; distances for the native quirk."""
    origin = global_table if method.centred else torch.zeros_like(global_table)
    vectors = [normalize((upload - origin).flatten(), dim=0, eps=0.0) for upload in uploads]
    cosines = torch.stack([torch.stack([a @ b for b in vectors]) for a in vectors])
    return 1 - cosines if method.native_cosine_distance else cosines


def links(method: GPFedRec, similar: Tensor) -> Tensor:
    """Row u: the weights of the users that u is smoothed with."""
    weights = torch.zeros_like(similar)
    threshold = method.threshold * similar.mean()
    for u, row in enumerate(similar.tolist()):
        if method.neighbours:
            chosen = sorted(range(len(row)), key=lambda v, row=row: -row[v])[: method.neighbours]  # type: ignore[misc]
        else:
            chosen = [v for v, value in enumerate(row) if value > threshold] or [u]
        for v in chosen:
            weights[u, v] = 1 / len(chosen)
    return weights


def server_update(
    method: GPFedRec, clients: list[Client], cohort: list[int], uploads: list[Tensor], global_table: Tensor
) -> Tensor:
    """R = A^L E for the participants; their mean is the new global table."""
    weights = links(method, similarity(method, uploads, global_table))
    guides = uploads
    for _ in range(method.hops):
        guides = [sum(w * table for w, table in zip(row, guides, strict=True)) for row in weights]
    for u, guide in zip(cohort, guides, strict=True):
        clients[u].guide = guide
    return torch.stack(guides).mean(0)
