"""FedRAP for one client at a time: `nn.Module`, `torch.optim.SGD`, full item tables per client. Slow and obvious.

The second writing of the method, against which the batched one is checked.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedrecgel.methods.fedrap import FedRAP
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors
from tests.oracles.plain import Devices, Oracle, layer_of, mean_bce, score_function


class AdditiveModel(nn.Module):
    """A linear layer on the sum of a common and a personal embedding."""

    def __init__(self, common: Tensor, personal: Tensor, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.common = nn.Embedding(len(common), common.shape[1], _weight=common.clone())
        self.personal = nn.Embedding(len(personal), personal.shape[1], _weight=personal.clone())
        self.layer = layer_of(weight[None], bias[None])

    def forward(self, items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, and the rows of C and D they are made of."""
        c, d = self.common(items), self.personal(items)
        return self.layer(c + d)[:, 0], c, d


class FedRAPOracle(Oracle):
    """Every device has its model; the server has the mean of the common tables it was sent."""

    def __init__(self, method: FedRAP, shared: Tensors, state: State) -> None:
        self.method = method
        parts = zip(state.tables["personal"].dense(), state["w"], state["b"], strict=True)
        self.models = [AdditiveModel(shared["common"], own, weight, bias) for own, weight, bias in parts]
        self.shared = {"common": shared["common"].clone()}
        self.epochs_run: set[int] = set()
        self.saturated = 0
        """Examples met on the wrong side, and beyond the reach of float32's sigmoid."""

    def train(self, cohort: list[int], devices: Devices, round: int) -> None:
        """C := the mean of the clients' copies."""
        sent = [self.client_update(client, devices, round) for client in cohort]
        if not self.method.alone:
            self.shared["common"] = torch.stack(sent).mean(0)

    def client_update(self, client: int, devices: Devices, round: int) -> Tensor:
        """All tensors at once, until the running average of the loss stands still; returns the copy of C."""
        method, model = self.method, self.models[client]
        model.common.weight.data.copy_(self.shared["common"])
        layer_lr, item_lr = method.lr_network * method.round_decay**round, method.lr_items * method.round_decay**round
        tables = [model.common.weight, model.personal.weight]
        groups = [{"params": model.layer.parameters(), "lr": layer_lr}, {"params": tables, "lr": item_lr}]
        optimiser = torch.optim.SGD(groups, weight_decay=method.weight_decay)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, gamma=method.batch_decay)
        losses, n_examples, before = 0.0, 0, math.nan
        for epoch in range(method.epochs):
            for items, labels in devices.mini_batches(client, round, method.batch_size, epoch):
                optimiser.zero_grad()
                loss = self.loss(model, items, labels, round)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
                losses += loss.item() * len(items)
                n_examples += len(items)
            average = losses / n_examples
            if epoch > 0 and abs(average - before) / abs(before) < method.tolerance:
                break
            before = average
        self.epochs_run.add(epoch + 1)
        sent: Tensor = model.common.weight.detach().clone()
        return sent

    def loss(self, model: AdditiveModel, items: Tensor, labels: Tensor, round: int) -> Tensor:
        """Cross-entropy, less the distance of C and D, plus the size of C; means over the batch's rows."""
        method = self.method
        growth = math.tanh(round / 10) if method.vary == "tanh" else 1.0
        logits, c, d = model(items)
        self.saturated += int(torch.where(labels > 0, logits < -29, logits > 18).sum())
        bce = mean_bce(logits, labels, saturating=method.saturating_bce)
        total: Tensor = bce - growth * method.lambda_ * (d - c).square().mean() + growth * method.mu * c.abs().mean()
        return total

    def private(self, client: int) -> Tensors:
        """Score layer and D."""
        model = self.models[client]
        return {**score_function(model.layer), "personal": model.personal.weight.detach()}

    def scores(self, client: int) -> Tensor:
        """The own layer on the server's new C plus the own D."""
        model = self.models[client]
        logits: Tensor = model.layer(self.shared["common"] + model.personal.weight)
        return logits.detach()[:, 0]
