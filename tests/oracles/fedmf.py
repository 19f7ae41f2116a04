"""FedMF for one client at a time: section 1 of the paper's algorithm with a plain loop over ratings. Slow and obvious.

The second writing of the method, against which the batched one is checked.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.methods.fedmf import FedMF
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors
from tests.oracles.plain import Devices, Oracle


class FedMFOracle(Oracle):
    """User vectors on devices; the item table on the server, from which item gradients are taken off."""

    def __init__(self, method: FedMF, shared: Tensors, state: State) -> None:
        self.method = method
        self.users = [user.clone() for user in state["user"]]
        self.shared = {"items": shared["items"].clone()}

    def train(self, cohort: list[int], devices: Devices, round: int) -> None:
        """V ← V - η Σ g, or η times the mean."""
        uploads = []
        for client in cohort:
            items, labels = devices.examples(client, round)
            if self.method.catalogue > 0:
                uploads.append(self.catalogue_update(client, sorted(set(items[labels == 1].tolist()))))
                continue
            if self.method.examples == "positives":
                items, labels = items[labels == 1], labels[labels == 1]
            uploads.append(self.client_update(client, items.tolist(), labels))
        step = torch.stack(uploads).sum(0)
        if self.method.aggregation == "mean":
            step = step / len(cohort)
        self.shared["items"] = self.shared["items"] - self.method.server_lr * step

    def client_update(self, client: int, items: list[int], labels: Tensor) -> Tensor:
        """Step the user vector; return what is sent, a full [n, d] table of gradients times the learning rate."""
        lr, reg_user, reg_item = self.method.lr, self.method.reg_user, self.method.reg_item
        table, sent = self.shared["items"], torch.zeros_like(self.shared["items"])
        if self.method.updates == "each":
            for item, label in zip(items, labels, strict=True):
                user, v = self.users[client], table[item]
                error = self.slope(user @ v, label)
                self.users[client] = user - lr * (error * v + 2 * reg_user * user)
                gradient = lr * (error * self.users[client] + 2 * reg_item * v)
                sent[item] = sent[item] + gradient if self.method.repeated == "add" else gradient
        else:
            user = self.users[client]
            errors = [self.slope(user @ table[item], label) for item, label in zip(items, labels, strict=True)]
            steps = [e * table[item] + 2 * reg_user * user for e, item in zip(errors, items, strict=True)]
            self.users[client] = user - lr * torch.stack(steps).sum(0)
            for error, item in zip(errors, items, strict=True):
                gradient = lr * (error * self.users[client] + 2 * reg_item * table[item])
                sent[item] = sent[item] + gradient if self.method.repeated == "add" else gradient
        if self.method.precision > 0:
            sent = torch.round(sent / self.method.precision) * self.method.precision
        return sent

    def catalogue_update(self, client: int, own: list[int]) -> Tensor:
        """Every item of the catalogue in one plain sum, differentiated automatically; all of it at the old vector."""
        method, table = self.method, self.shared["items"].clone().requires_grad_()
        user = self.users[client].clone().requires_grad_()
        loss = torch.zeros((), dtype=user.dtype)
        for item in range(len(table)):
            score = user @ table[item]
            if item in own:
                loss = loss + (1 - score) ** 2
                loss = loss + method.reg_user * user.square().sum() + method.reg_item * table[item].square().sum()
            else:
                loss = loss + method.catalogue * score**2
        g_user, g_table = torch.autograd.grad(loss, [user, table])
        self.users[client] = self.users[client] - method.lr * g_user
        return method.lr * g_table

    def slope(self, score: Tensor, label: Tensor) -> Tensor:
        """∂loss/∂score: -2e for squared error, σ(s) - y for cross-entropy."""
        s = score.clone().requires_grad_()
        loss = (label - s).square() if self.method.loss == "squared" else binary_cross_entropy_with_logits(s, label)
        (slope,) = torch.autograd.grad(loss, s)
        return slope

    def private(self, client: int) -> Tensors:
        """The user vector."""
        return {"user": self.users[client]}

    def scores(self, client: int) -> Tensor:
        """u · v_j of all items."""
        scores: Tensor = self.shared["items"] @ self.users[client]
        return scores
