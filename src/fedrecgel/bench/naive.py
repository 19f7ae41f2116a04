"""The engine everybody writes first, as the comparison: one deep-copied module and one optimiser per client.

Every client samples its negatives in a Python loop, copies the whole model, runs passes of minibatches that add up
dense gradients of the whole item tables, saves and restores parameters around each perturbation, and steps its copy,
which is then thrown away, as published code does.
"""

from __future__ import annotations

import copy
import random

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.data.federation import Federation
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.models.gradients import EPSILON
from fedrecgel.tensors import Ids, Tensors

Examples = tuple[Tensor, Tensor]
"""Items and labels of one client."""


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

    def __init__(self, method: FedRecGEL, federation: Federation, shared: Tensors) -> None:
        self.method, self.federation = method, federation
        self.model = NaiveModel(federation.n_items, method.gmf_dim, method.mlp_dim)
        first = torch.cat([shared["w1_user"], shared["w1_item"]], dim=1)
        tower = [first, shared["b1"][0], shared["w2"], shared["b2"][0], shared["w3"], shared["b3"][0]]
        out = torch.cat([shared["out_gmf"], shared["out_mlp"]]).T
        given = [shared["item_gmf"], shared["item_mlp"], *tower, out, shared["out_bias"][0]]
        for parameter, value in zip(self.model.shared(), given, strict=True):
            parameter.data.copy_(value)
        self.random = random.Random(0)
        self.server = torch.optim.Adam(self.model.shared(), lr=method.server_lr)

    def train(self, cohort: Ids, users: Float[Tensor, "C d"], given: list[Examples] | None = None) -> list[Tensor]:
        """One round; returns the mean gradient of the shared parameters.

        Args:
            cohort: who trains.
            users: their private vectors.
            given: examples to train on; drawn here when not given.
        """
        sums = [torch.zeros_like(p) for p in self.model.shared()]
        for number, user in enumerate(users):
            items, labels = given[number] if given else self._sample(int(cohort[number]))
            for total, gradient in zip(sums, self._client(user, items, labels), strict=True):
                total += gradient
        mean = [total / len(cohort) for total in sums]
        for parameter, gradient in zip(self.model.shared(), mean, strict=True):
            parameter.grad = gradient
        self.server.step()
        return mean

    def _sample(self, client: int) -> Examples:
        """Each positive followed by its negatives."""
        train, k = self.federation.split.train, self.federation.settings.negatives
        positives = train.items[train.ptr[client] : train.ptr[client + 1]].tolist()
        known = set(positives)
        outside = [item for item in range(self.federation.n_items) if item not in known]
        self.random.shuffle(positives)
        items, labels = [], []
        for positive in positives:
            items += [positive, *self.random.sample(outside, k)]
            labels += [1.0, *[0.0] * k]
        return torch.tensor(items), torch.tensor(labels)

    def _client(self, user: Float[Tensor, " d"], items: Int[Tensor, " L"], labels: Float[Tensor, " L"]) -> list[Tensor]:
        model = copy.deepcopy(self.model)
        model.user_gmf.data.copy_(user[: self.method.gmf_dim])
        model.user_mlp.data.copy_(user[self.method.gmf_dim :])
        optimiser = torch.optim.Adam(model.parameters(), lr=self.method.user_lr)
        self._backward(model, optimiser, items, labels)
        shared = self._worst_gradient(model, optimiser, model.shared(), self.method.rho_co, items, labels)
        self._backward(model, optimiser, items, labels)
        private = self._worst_gradient(model, optimiser, model.private(), self.method.rho_ur, items, labels)
        for parameter, gradient in zip([*model.shared(), *model.private()], [*shared, *private], strict=True):
            parameter.grad = gradient
        optimiser.step()
        return shared

    def _backward(
        self,
        model: NaiveModel,
        optimiser: torch.optim.Optimizer,
        items: Int[Tensor, " L"],
        labels: Float[Tensor, " L"],
    ) -> None:
        optimiser.zero_grad()
        size = self.method.chunk
        for k in range(0, len(items), size):
            binary_cross_entropy_with_logits(model(items[k : k + size]), labels[k : k + size]).backward()  # type: ignore[no-untyped-call]

    def _worst_gradient(
        self,
        model: NaiveModel,
        optimiser: torch.optim.Optimizer,
        parameters: list[nn.Parameter],
        rho: float,
        items: Int[Tensor, " L"],
        labels: Float[Tensor, " L"],
    ) -> list[Tensor]:
        """The gradient of some parameters where they are worst, to first order; they are put back afterwards."""
        before = [p.data.clone() for p in parameters]
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.data += rho / (norm + EPSILON) * gradient
        self._backward(model, optimiser, items, labels)
        worst = [p.grad.clone() for p in parameters if p.grad is not None]
        for parameter, value in zip(parameters, before, strict=True):
            parameter.data.copy_(value)
        return worst
