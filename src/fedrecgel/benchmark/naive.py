"""The engine everybody writes first, as the comparison: one deep-copied module and one optimiser per client.

Every client copies the whole model, gets dense gradients of the whole item tables from autograd, computes the
sharpness-aware gradients in three passes, and steps its copy, which is then thrown away, as published code does. It
takes its examples from the vectorised sampler, which is more than such code usually has.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.data.federation import Federation
from fedrecgel.draws import Draws
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.nn.sam import EPSILON
from fedrecgel.tensors import Ids, Tensors


class NaiveModel(nn.Module):
    """NeuMF as textbooks draw it, with one user's vectors inside."""

    def __init__(self, n_items: int, gmf_dim: int, mlp_dim: int) -> None:
        super().__init__()
        self.user_gmf, self.user_mlp = nn.Parameter(torch.zeros(gmf_dim)), nn.Parameter(torch.zeros(mlp_dim))
        self.item_gmf, self.item_mlp = nn.Embedding(n_items, gmf_dim), nn.Embedding(n_items, mlp_dim)
        self.tower = nn.Sequential(
            nn.Linear(2 * mlp_dim, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()
        )
        self.predict = nn.Linear(gmf_dim + 32, 1)

    def forward(self, items: Int[Tensor, " L"]) -> Float[Tensor, " L"]:
        """Logits of one user's items."""
        mlp = self.tower(torch.cat([self.user_mlp.expand(len(items), -1), self.item_mlp(items)], dim=1))
        logits: Tensor = self.predict(torch.cat([self.user_gmf * self.item_gmf(items), mlp], dim=1)).squeeze(1)
        return logits

    def private(self) -> list[nn.Parameter]:
        """What stays on the device."""
        return [self.user_gmf, self.user_mlp]

    def shared(self) -> list[nn.Parameter]:
        """What travels."""
        return [p for name, p in self.named_parameters() if not name.startswith("user_")]


class NaiveEngine:
    """Clients one after another."""

    def __init__(self, method: FedRecGEL, federation: Federation, draws: Draws, shared: Tensors) -> None:
        self.method, self.federation, self.draws = method, federation, draws
        self.model = NaiveModel(federation.n_items, method.gmf_dim, method.mlp_dim)
        first = torch.cat([shared["w1_user"], shared["w1_item"]], dim=1)
        tower = [first, shared["b1"][0], shared["w2"], shared["b2"][0], shared["w3"], shared["b3"][0]]
        out = torch.cat([shared["out_gmf"], shared["out_mlp"]]).T
        given = [shared["item_gmf"], shared["item_mlp"], *tower, out, shared["out_bias"][0]]
        for parameter, value in zip(self.model.shared(), given, strict=True):
            parameter.data.copy_(value)
        self.server = torch.optim.Adam(self.model.shared(), lr=method.server_lr)

    def train(self, cohort: Ids, users: Float[Tensor, "C d"], round: int) -> list[Tensor]:
        """One round; returns the mean gradient of the shared parameters."""
        sums = [torch.zeros_like(p) for p in self.model.shared()]
        for client, user in zip(cohort, users, strict=True):
            for total, gradient in zip(sums, self._client(client.view(1), user, round), strict=True):
                total += gradient
        mean = [total / len(cohort) for total in sums]
        for parameter, gradient in zip(self.model.shared(), mean, strict=True):
            parameter.grad = gradient
        self.server.step()
        return mean

    def _client(self, client: Ids, user: Float[Tensor, " d"], round: int) -> list[Tensor]:
        batch = self.federation.batch(client, round, self.draws)
        items, labels = batch.items[0], batch.labels[0]
        model = copy.deepcopy(self.model)
        with torch.no_grad():
            model.user_gmf.copy_(user[: self.method.gmf_dim])
            model.user_mlp.copy_(user[self.method.gmf_dim :])
        optimiser = torch.optim.Adam(model.parameters(), lr=self.method.user_lr)
        base = self._gradients(model, items, labels)
        n_private = len(model.private())
        found = []
        for parameters, gradients, rho in (
            (model.private(), base[:n_private], self.method.rho_ur),
            (model.shared(), base[n_private:], self.method.rho_co),
        ):
            scale = rho / (torch.sqrt(sum(g.square().sum() for g in gradients)) + EPSILON)  # type: ignore[arg-type]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.data += scale * gradient
            worst = self._gradients(model, items, labels)
            found += worst[:n_private] if len(parameters) == n_private else worst[n_private:]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.data -= scale * gradient
        for parameter, gradient in zip([*model.private(), *model.shared()], found, strict=True):
            parameter.grad = gradient
        optimiser.step()
        return found[n_private:]

    def _gradients(self, model: NaiveModel, items: Int[Tensor, " L"], labels: Float[Tensor, " L"]) -> list[Tensor]:
        size = self.method.chunk
        losses = [
            binary_cross_entropy_with_logits(model(items[k : k + size]), labels[k : k + size])
            for k in range(0, len(items), size)
        ]
        return list(torch.autograd.grad(torch.stack(losses).sum(), [*model.private(), *model.shared()]))
