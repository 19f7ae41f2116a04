"""GPFedRec for one client at a time: whole tables, one loss with the pull as a term of it, a dense graph."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fedrecgel.methods.gpfedrec import NO_GUIDE, GPFedRec
from fedrecgel.methods.messages import Server
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors
from tests.oracles.plain import Devices, Examples, Oracle, mean_bce


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

    def layers(self) -> list[nn.Linear]:
        """All of them, first to last."""
        return [*(layer for layer in self.hidden if isinstance(layer, nn.Linear)), self.last]


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


def client_update(method: GPFedRec, client: Client, global_table: Tensor, batches: list[Examples]) -> list[float]:
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
    for items, labels in batches:
        optimiser.zero_grad()
        logits = client.network(client.user, table[items])
        fit = mean_bce(logits, labels, saturating=method.saturating_bce)
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


class GPFedRecOracle(Oracle):
    """User, network and last table on the devices; guides and the mean of them on the server."""

    def __init__(self, method: GPFedRec, shared: Tensors, state: State) -> None:
        self.method = method
        self.shared = {"items": shared["items"]}
        self.clients = []
        self.batch_counts: set[int] = set()
        for row, user in enumerate(state["user"]):
            network = Network(method.dim, method.layers)
            for number, layer in enumerate(network.layers()):
                layer.weight.data.copy_(state[f"w{number}"][row].T)
                layer.bias.data.copy_(state[f"b{number}"][row])
            self.clients.append(Client(nn.Parameter(user.clone()), network))

    def train(self, cohort: list[int], devices: Devices, round: int) -> float:
        """Tables, noised on the device, into guides and their mean."""
        uploads, losses = [], []
        for number in cohort:
            client, batches = (
                self.clients[number],
                devices.epochs(number, round, self.method.batch_size, self.method.epochs),
            )
            found = client_update(self.method, client, self.shared["items"], batches)
            losses.append(sum(found) / len(found))
            assert client.table is not None
            uploads.append(client.table + self.noise(devices, number, round))
            self.batch_counts.add(len(batches))
        self.shared = {"items": server_update(self.method, self.clients, cohort, uploads, self.shared["items"])}
        return sum(losses) / len(losses)

    def noise(self, devices: Devices, client: int, round: int) -> Tensor:
        """What one client adds to its table, which is an input."""
        drawn = devices.draws.laplace("noise", round, torch.tensor([client]).numpy(), self.shared["items"].numel())
        return self.method.noise * torch.from_numpy(drawn).view(-1, self.method.dim)

    def private(self, client: int) -> Tensors:
        """User, network, and the table as the device last left it."""
        own = self.clients[client]
        found = {"user": own.user.detach(), **({} if own.table is None else {"items": own.table})}
        for number, layer in enumerate(own.network.layers()):
            found |= {f"w{number}": layer.weight.detach().T, f"b{number}": layer.bias.detach()}
        return found

    def scores(self, client: int) -> Tensor:
        """With the own table, or the server's new one."""
        return self.clients[client].score(self.shared["items"])

    def more(self, server: Server, state: State) -> dict[str, tuple[Tensor, Tensor]]:
        """Who trained, who has a guide, and the guides."""
        places = server.kept["guide_of"]
        found = {
            "who trained": (state["trained"] > 0, torch.tensor([own.table is not None for own in self.clients])),
            "who has a guide": (places != NO_GUIDE, torch.tensor([own.guide is not None for own in self.clients])),
        }
        found = {name: (mine.int(), wanted.int()) for name, (mine, wanted) in found.items()}
        for number, own in enumerate(self.clients):
            if own.guide is not None:
                found[f"guide of client {number}"] = server.kept["guides"][places[number]], own.guide
        return found
