"""FedRecGEL for one client at a time: `nn.Module`, `torch.optim`, plain loops, dense item tables. Slow and obvious.

The second writing of the method, against which the batched one is checked. With both radii zero it is FedNCF.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import Server
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors
from tests.oracles.plain import Devices, Oracle, layer_of


class NeuMFModule(nn.Module):
    """The textbook model: concatenated embeddings through a tower."""

    def __init__(self, shared: dict[str, Tensor], gmf_dim: int) -> None:
        super().__init__()
        self.gmf_dim = gmf_dim
        self.item_gmf = nn.Embedding(len(shared["item_gmf"]), gmf_dim, _weight=shared["item_gmf"].clone())
        self.item_mlp = nn.Embedding(
            len(shared["item_mlp"]), shared["item_mlp"].shape[1], _weight=shared["item_mlp"].clone()
        )
        first = torch.cat([shared["w1_user"], shared["w1_item"]], dim=1)
        weights = [first, shared["w2"], shared["w3"]]
        self.tower = nn.ModuleList(layer_of(w, shared[f"b{i}"][0]) for i, w in enumerate(weights, start=1))
        out = torch.cat([shared["out_gmf"], shared["out_mlp"]], dim=0).T
        self.predict = layer_of(out, shared["out_bias"][0])

    def forward(self, user: Tensor, items: Tensor) -> Tensor:
        """Logits of one user's items."""
        gmf, mlp = user[: self.gmf_dim], user[self.gmf_dim :]
        hidden = torch.cat([mlp.expand(len(items), -1), self.item_mlp(items)], dim=1)
        for layer in self.tower:
            hidden = torch.relu(layer(hidden))
        logits: Tensor = self.predict(torch.cat([gmf * self.item_gmf(items), hidden], dim=1))
        return logits.squeeze(1)

    def named(self, tensors: list[Tensor]) -> dict[str, Tensor]:
        """Tensors in the order of `parameters()` under the names of the shared tensors."""
        gmf, mlp, w1, b1, w2, b2, w3, b3, out, bias = tensors
        cut = w1.shape[1] // 2
        return {
            "item_gmf": gmf,
            "item_mlp": mlp,
            "w1_user": w1[:, :cut],
            "w1_item": w1[:, cut:],
            "b1": b1[None],
            "w2": w2,
            "b2": b2[None],
            "w3": w3,
            "b3": b3[None],
            "out_gmf": out[:, : self.gmf_dim].T,
            "out_mlp": out[:, self.gmf_dim :].T,
            "out_bias": bias[None],
        }


@dataclass
class Client:
    """One device: its vector and its optimiser, both kept over rounds."""

    user: nn.Parameter
    optimiser: torch.optim.Optimizer = field(init=False)

    def attach(self, method: FedRecGEL) -> Client:
        kind = torch.optim.Adam if method.user_optimiser == "adam" else torch.optim.SGD
        self.optimiser = kind([self.user], lr=method.user_lr)
        return self


def local_loss(method: FedRecGEL, model: NeuMFModule, user: Tensor, items: Tensor, labels: Tensor) -> Tensor:
    """Sum of chunk means, or one mean."""
    size = method.chunk if method.reduction == "chunks" else max(1, len(items))
    chunks = range(0, len(items), size)
    losses = [binary_cross_entropy_with_logits(model(user, items[k : k + size]), labels[k : k + size]) for k in chunks]
    return torch.stack(losses).sum() if losses else 0 * user.sum() + 0 * sum(p.sum() for p in model.parameters())


def step_to_worst(parameters: list[Tensor], gradients: list[Tensor], rho: float) -> None:
    """θ += ρ ∇L / (‖∇L‖ + 1e-12), one norm over all tensors."""
    norm = torch.sqrt(sum(g.square().sum() for g in gradients))  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter += rho * gradient / (norm + 1e-12)


def client_update(
    method: FedRecGEL, client: Client, shared: dict[str, Tensor], items: Tensor, labels: Tensor, g_norm: float = 0.0
) -> dict[str, Tensor]:
    """One round on one device: steps `client`, returns the gradient it sends.

    `g_norm` is the number c with ∇f = c θ for this client.
    """
    model = NeuMFModule(shared, method.gmf_dim)
    parameters = list(model.parameters())

    def gradients(at: NeuMFModule, user: Tensor) -> tuple[list[Tensor], Tensor]:
        *shared_part, user_part = torch.autograd.grad(
            local_loss(method, at, user, items, labels), [*at.parameters(), user]
        )
        return shared_part, user_part

    g_shared, g_user = gradients(model, client.user)
    worst_user = client.user.detach().clone()
    step_to_worst([worst_user], [g_user], method.rho_ur)
    h_user = gradients(model, worst_user.requires_grad_())[1]
    old_user = client.user.detach().clone().requires_grad_()
    prior = method.reg_user / max(1, len(items))
    client.user.grad = h_user + (g_norm + prior) * old_user.detach()
    client.optimiser.step()

    user = old_user
    if method.order == "user-first":
        user = client.user.detach().clone().requires_grad_()
        g_shared = gradients(model, user)[0]
    worst = copy.deepcopy(model)
    moving: list[Tensor] = list(worst.parameters())
    if method.balls == "item":  # the first two are the item tables
        tables = [table.data for table in moving[:2]]
        for rows in zip(*tables, *g_shared[:2], strict=True):
            step_to_worst(list(rows[:2]), list(rows[2:]), method.rho_co)
        moving, g_shared = moving[2:], g_shared[2:]
    step_to_worst(moving, g_shared, method.rho_co)
    h_shared = gradients(worst, user)[0]
    return model.named([h + g_norm * p.detach() for h, p in zip(h_shared, parameters, strict=True)])


def decay_of(method: FedRecGEL, shared: Tensors, user: Tensor, n_records: int) -> float:
    """c with ∇f = c θ by automatic differentiation of Eq. 8 at the client's whole parameter vector."""
    if method.g_norm == 0:
        return 0.0
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
    return float(method.g_norm * (gradient @ theta.detach()) / theta.detach().square().sum())


class FedRecGELOracle(Oracle):
    """Vectors and their optimisers on the devices; the server steps with the mean of the gradients it was sent."""

    def __init__(self, method: FedRecGEL, shared: Tensors, state: State) -> None:
        self.method = method
        self.clients = [Client(nn.Parameter(user.clone())).attach(method) for user in state["user"]]
        self.parameters = {name: nn.Parameter(value.clone()) for name, value in shared.items()}
        self.optimiser: torch.optim.Optimizer
        if method.server_optimiser == "adam":
            self.optimiser = torch.optim.Adam(self.parameters.values(), lr=method.server_lr, eps=method.tau)
        else:
            self.optimiser = torch.optim.SGD(self.parameters.values(), lr=method.server_lr)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimiser, method.round_decay)
        self.repeated = 0
        """Negatives drawn more than once for a client."""

    @property
    def shared(self) -> Tensors:  # type: ignore[override]
        return {name: value.detach() for name, value in self.parameters.items()}

    def train(self, cohort: list[int], devices: Devices, round: int) -> None:
        """Mean over clients: each counts the same, or by its examples."""
        sums = {name: torch.zeros_like(value) for name, value in self.shared.items()}
        weights = 0
        for number in cohort:
            items, labels = devices.examples(number, round)
            self.repeated += len(items) - len(set(items.tolist()))
            decay = decay_of(self.method, self.shared, self.clients[number].user.detach(), len(items))
            sent = client_update(self.method, self.clients[number], self.shared, items, labels, decay)
            weight = len(items) if self.method.weighting == "examples" else 1
            weights += weight
            for name, value in sent.items():
                sums[name] += weight * value
        for name, total in sums.items():
            self.parameters[name].grad = total / weights
        self.optimiser.step()
        self.schedule.step()

    def private(self, client: int) -> Tensors:
        """The vector."""
        return {"user": self.clients[client].user.detach()}

    def scores(self, client: int) -> Tensor:
        """The server's model with the own vector."""
        catalogue = torch.arange(len(self.shared["item_gmf"]))
        logits: Tensor = NeuMFModule(self.shared, self.method.gmf_dim)(self.clients[client].user, catalogue)
        return logits.detach()

    def more(self, server: Server, state: State) -> dict[str, tuple[Tensor, Tensor]]:
        """Moments of the server's Adam: its first step forgets the length of a gradient, they do not."""
        found = {}
        for name, parameter in self.parameters.items():
            kept = self.optimiser.state[parameter]
            if "exp_avg" in kept:
                found[f"first moment of {name}"] = server.kept[f"{name}.m"], kept["exp_avg"]
                found[f"second moment of {name}"] = server.kept[f"{name}.v"], kept["exp_avg_sq"]
        return found
