"""FedNCF-weights for one client at a time: `nn.Module`, `torch.optim.Adam`, full item tables. Slow and obvious.

The second writing of the method, against which the batched one is checked.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.methods.fedncf_weights import FedNCFWeights
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors, copy
from tests.oracles.fedrecgel import NeuMFModule
from tests.oracles.plain import Devices, Oracle


class FedNCFWeightsOracle(Oracle):
    """Every device has its vector and its vector's Adam; the server has all else."""

    def __init__(self, method: FedNCFWeights, shared: Tensors, state: State) -> None:
        self.method = method
        self.shared = copy(shared)
        self.users = [nn.Parameter(user.clone()) for user in state["user"]]
        self.optimisers = [torch.optim.Adam([user], lr=method.user_lr) for user in self.users]

    def train(self, cohort: list[int], devices: Devices, round: int) -> None:
        """Average what the clients' models became."""
        sent = [self.client_update(client, devices, round) for client in cohort]
        drawn = [devices.examples(client, round)[0] for client in cohort]
        if self.method.aggregation == "mean":
            self.shared = {name: torch.stack([own[name] for own in sent]).mean(0) for name in self.shared}
            return
        n_all = sum(len(items) for items in drawn)
        after = {
            name: torch.stack([own[name] * len(items) for own, items in zip(sent, drawn, strict=True)]).sum(0) / n_all
            for name in self.shared
        }
        for name in ("item_gmf", "item_mlp"):
            after[name] = self.shared[name].clone()
            for item in range(len(after[name])):
                rows = [own[name][item] for own, items in zip(sent, drawn, strict=True) if item in items]
                if rows:
                    after[name][item] = torch.stack(rows).mean(0)
        self.shared = after

    def client_update(self, client: int, devices: Devices, round: int) -> Tensors:
        """Local epochs on a fresh copy of the model; the vector and its optimiser go on from where they were."""
        method, user = self.method, self.users[client]
        model = NeuMFModule(self.shared, method.gmf_dim)
        optimiser = torch.optim.Adam(model.parameters(), lr=method.lr)
        for epoch in range(method.epochs):
            for items, labels in devices.mini_batches(client, round, method.batch_size, epoch):
                model.zero_grad()
                user.grad = None
                loss = binary_cross_entropy_with_logits(model(user, items), labels)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                self.optimisers[client].step()
        return model.named([parameter.detach() for parameter in model.parameters()])

    def private(self, client: int) -> Tensors:
        """The vector."""
        return {"user": self.users[client].detach()}

    def scores(self, client: int) -> Tensor:
        """The server's model with the own vector."""
        catalogue = torch.arange(len(self.shared["item_gmf"]))
        logits: Tensor = NeuMFModule(self.shared, self.method.gmf_dim)(self.users[client], catalogue)
        return logits.detach()
