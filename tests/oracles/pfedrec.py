"""PFedRec for one client at a time: `nn.Module`, two `torch.optim.SGD`, a full item table per client. Slow and obvious.

The second writing of the method, against which the batched one is checked.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedrecgel.methods.pfedrec import PFedRec
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors
from tests.oracles.plain import Devices, Oracle, layer_of, mean_bce, score_function


class ScoreModel(nn.Module):
    """A linear layer on item embeddings."""

    def __init__(self, table: Tensor, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.items = nn.Embedding(len(table), table.shape[1], _weight=table.clone())
        self.layer = layer_of(weight[None], bias[None])

    def forward(self, items: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.layer(self.items(items))
        return logits[:, 0]


class PFedRecOracle(Oracle):
    """Every device has its model; the server has the mean of the item tables it was sent."""

    def __init__(self, method: PFedRec, shared: Tensors, state: State) -> None:
        self.method = method
        layers = zip(state["w"], state["b"], strict=True)
        self.models = [ScoreModel(shared["items"], weight, bias) for weight, bias in layers]
        self.shared = {"items": shared["items"].clone()}
        self.participated: set[int] = set()
        self.saturated = 0
        """Examples met on the wrong side, and beyond the reach of float32's sigmoid."""

    def train(self, cohort: list[int], devices: Devices, round: int) -> None:
        """G := the mean of the tables as they left local training."""
        sent = [self.client_update(client, devices, round) for client in cohort]
        if not self.method.alone:
            self.shared["items"] = torch.stack(sent).mean(0)

    def client_update(self, client: int, devices: Devices, round: int) -> Tensor:
        """Score function, then items under the new score function, batch by batch; returns the item table."""
        model = self.models[client]
        self.participated.add(client)
        if not self.method.alone:
            model.items.weight.data.copy_(self.shared["items"])
        n_items = len(model.items.weight)
        function = torch.optim.SGD(model.layer.parameters(), lr=self.method.lr)
        table = torch.optim.SGD(model.items.parameters(), lr=self.method.lr * n_items * self.method.lr_eta)
        for epoch in range(self.method.epochs):
            for items, labels in devices.mini_batches(client, round, self.method.batch_size, epoch):
                for optimiser in (function, table):
                    model.zero_grad()
                    logits = model(items)
                    self.saturated += int(torch.where(labels > 0, logits < -29, logits > 18).sum())
                    loss = mean_bce(logits, labels, saturating=self.method.saturating_bce)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
        sent: Tensor = model.items.weight.detach().clone()
        return sent

    def private(self, client: int) -> Tensors:
        """Score function, and the table as the device last left it."""
        model = self.models[client]
        return {**score_function(model.layer), "items": model.items.weight.detach()}

    def scores(self, client: int) -> Tensor:
        """The model as it left local training; a client that never took part has the global table, or the first."""
        model = self.models[client]
        if client in self.participated or self.method.unseen == "initial":
            table = model.items.weight.detach()
        else:
            table = self.shared["items"]
        logits: Tensor = model.layer(table)
        return logits.detach()[:, 0]
