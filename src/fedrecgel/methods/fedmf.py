"""FedMF: secure federated matrix factorisation.

Chai, Wang, Chen and Yang, "Secure Federated Matrix Factorization", IEEE Intelligent Systems 36(5), 2021,
https://arxiv.org/abs/1906.05108.

Idea: matrix factorisation in which user vectors stay on the devices and only item gradients travel, under an additively
homomorphic encryption: the server can add them up and subtract them from its table, but cannot read them.

Paper to code: score u_i · v_j `score`; user update and item gradient `client_update`; server step V ← V - Σ g
`server_update`, which is linear and so runs unchanged on ciphertexts.

Deviations: paper and released code factorise ratings by squared error, and take every user in every round. On clicks
that collapses to a constant, so labels are {0, 1} on the common 1:4 sample and the error is that of the
cross-entropy, σ(u·v) - y instead of -2e. The code starts all entries at 0.01, which keeps the model at rank 1
(`init`); it assigns the gradient of an item instead of adding up (`repeated`); precision is 1e-5 (`precision`). The
variant `native` has all of these. Ratings come in the order of the sample, not of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.models.catalogue import CatalogueLoss, gram_of_items
from fedrecgel.models.factors import Walk
from fedrecgel.tensors import Factors, is_whole

INIT = 0.01
"""Standard deviation of the start, or the start itself."""
RELEASED: dict[str, object] = {
    "fraction": 1.0,
    "dim": 32,
    "lr": 0.05,
    "server_lr": 1.0,
    "reg_user": 1e-4,
    "reg_item": 1e-4,
    "updates": "each",
    "aggregation": "sum",
}
"""The released code's way of stepping, at a size and a rate for clicks."""
STRIDES = 8
"""Steps that a newcomer takes through its examples; one after another takes as many as there are."""


@dataclass(frozen=True, kw_only=True)
class FedMF(fed.Method):
    """Matrix factorisation whose clients send item gradients that may stay encrypted."""

    paper: ClassVar[str] = "Chai et al., IEEE Intelligent Systems 2021"
    sends: ClassVar[frozenset[str]] = frozenset({"items", "users"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "released": RELEASED,
        "native": RELEASED
        | {"dim": 100, "lr": 1e-3, "loss": "squared", "init": "constant", "examples": "positives"}
        | {"repeated": "last", "precision": 1e-5},
    }
    search: ClassVar[Mapping[str, object]] = {
        "lr": {"low": 1e-2, "high": 1.0, "log": True},
        "server_lr": {"low": 3e-2, "high": 3.0, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {"lr": 0.1}

    fraction: fed.Fraction = 1.0
    """Share of clients drawn each round."""
    dim: fed.Size = 32
    """Size d of user and item vectors."""
    lr: fed.Rate = 0.05
    """Learning rate of both vectors on the device (γ)."""
    server_lr: fed.Rate = 0.1
    """What the server multiplies the clients' gradients by."""
    reg_user: fed.Radius = 0.01
    """Regularisation λ of the user vector."""
    reg_item: fed.Radius = 0.01
    """Regularisation µ of the item vectors."""
    loss: Literal["bce", "squared"] = "bce"
    """Cross-entropy, or squared error as published for ratings."""
    updates: Literal["each", "batch"] = "each"
    """Step the user vector after each example, as published, or once for all of them."""
    aggregation: Literal["sum", "mean"] = "sum"
    """The server subtracts the sum, as published, or the mean of the gradients."""
    init: Literal["normal", "constant"] = "normal"
    """N(0, 0.01²), or 0.01 everywhere as in the released code: all coordinates stay equal then."""
    repeated: Literal["add", "last"] = "add"
    """An item drawn twice sends the sum of its gradients, or as in the released code the last one."""
    examples: Literal["sampled", "positives"] = "sampled"
    """Train on positives and sampled negatives, or on positives alone, which collapses to a constant."""
    catalogue: fed.Radius = 0.0
    """Weight of items a client does not have, in a squared error over the whole catalogue; 0 samples negatives. Takes
    the place of `loss`, `updates`, `examples` and `repeated`, and needs rates of its own."""
    precision: fed.Radius = 0.0
    """Round what is sent to multiples of this, as 1e-5 of the released encryption; 0 switches rounding off."""

    @property
    def server_needs(self) -> fed.Need:
        """A sum, which may stay encrypted; over the whole catalogue it is multiplied by the table."""
        return fed.Need.SUM if self.catalogue > 0 else fed.Need.LINEAR

    def leaves_device(self) -> frozenset[str]:
        """Item gradients; over the whole catalogue also u uᵀ, which gives the vector away but for its sign."""
        return self.sends if self.catalogue > 0 else self.sends - {"users"}

    @property
    def scores_by_product(self) -> bool:
        """One vector times all items."""
        return True

    @property
    def samples_negatives(self) -> bool:
        """Not for positives alone, nor where all other items count."""
        return self.examples == "sampled" and self.catalogue == 0

    @property
    def smallest_sum(self) -> int:
        """Half as many as other methods need, as measured where negatives are among the rows that are sent."""
        return 50 if self.samples_negatives else super().smallest_sum

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """The item table V."""
        if self.init == "constant":
            shape = (problem.n_items, self.dim)
            return fed.Server({"items": torch.full(shape, INIT, dtype=problem.dtype, device=problem.device)})
        start = draws.generator("init/items").normal(0, INIT, (problem.n_items, self.dim))
        return fed.Server({"items": problem.tensor(start)})

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """User vectors."""
        if self.init == "constant":
            user = torch.full((self.dim,), INIT, dtype=problem.dtype, device=problem.device)
            return fed.State.start(len(ids), {"user": user})
        return fed.State({"user": problem.tensor(INIT * draws.normal("init/user", 0, ids.numpy(), self.dim))})

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """Step u through the examples; send the item gradients at the V of the round's start."""
        rows = down.shared["items"][batch.rows]
        if self.catalogue > 0:
            return self._over_the_catalogue(private["user"], rows, down.derive(gram_of_items), batch)
        counts = batch.mask if self.examples == "sampled" else batch.mask & (batch.labels > 0)
        if self.updates == "each":
            user, gradient, loss = self.walk(private["user"], rows, batch.slots, batch.labels, counts)
        else:
            user, gradient, loss = self._at_once(private["user"], rows, batch, counts)
        upload = fed.Upload(batch.ids, {}, {"items": self._round(gradient)}, batch.rows, torch.ones_like(loss))
        return fed.ClientResult(fed.State({"user": user}), upload, loss / counts.sum(1).clamp(min=1))

    def local_round(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.State:
        """The same walk in strides: each client's examples in `STRIDES` equal parts, one step for each part."""
        if self.catalogue > 0:
            return super().local_round(private, down, batch, round, draws)
        counts = batch.mask if self.examples == "sampled" else batch.mask & (batch.labels > 0)
        place = torch.arange(counts.shape[1], device=counts.device)
        part = place * STRIDES // batch.n_examples.clamp(min=1)[:, None]
        rows, user, labels = down.shared["items"][batch.rows], private["user"], batch.row_labels
        # times[c, s, k]: how often the examples of stride s show row k
        times = rows.new_zeros(len(rows), STRIDES * rows.shape[1])
        at = (part * rows.shape[1] + batch.slots).clamp(max=times.shape[1] - 1)
        times = times.scatter_add_(1, at, counts.to(rows.dtype)).view(len(rows), STRIDES, rows.shape[1])
        kept = 1 - 2 * self.lr * self.reg_user * times.sum(2)
        for stride in range(STRIDES):
            error = self.walk.slope((rows @ user[:, :, None]).squeeze(2), labels) * times[:, stride]
            user = kept[:, stride, None] * user - self.lr * (error[:, None] @ rows).squeeze(1)
        return fed.State({"user": user})

    def _over_the_catalogue(
        self,
        user: Float[Tensor, "C d"],
        rows: Float[Tensor, "C K d"],
        gram: Float[Tensor, "d d"],
        batch: fed.ClientBatch,
    ) -> fed.ClientResult:
        """One step of u; own rows and u uᵀ are what the server needs for its step, all at the old u."""
        own = batch.row_mask & (batch.row_labels > 0)
        found = CatalogueLoss(self.catalogue).differentiate(user, rows, own, gram)
        sent = self.lr * (found.rows + 2 * self.reg_item * own[:, :, None] * rows)
        dense = {"users": Factors(self.lr * user[:, None], user[:, None])}
        stepped = user - self.lr * (found.user + 2 * self.reg_user * own.sum(1, keepdim=True) * user)
        upload = fed.Upload(batch.ids, dense, {"items": self._round(sent)}, batch.rows, torch.ones_like(found.loss))
        return fed.ClientResult(fed.State({"user": stepped}), upload, found.loss / own.sum(1).clamp(min=1))

    def _round(self, gradient: Float[Tensor, "C K d"]) -> Float[Tensor, "C K d"]:
        return (gradient / self.precision).round() * self.precision if self.precision > 0 else gradient

    @property
    def walk(self) -> Walk:
        """One example after another: the error at the old u, the item gradient with the new one."""
        return Walk(self.lr, self.reg_user, self.reg_item, self.loss, self.repeated)

    def _at_once(
        self,
        user: Float[Tensor, "C d"],
        rows: Float[Tensor, "C K d"],
        batch: fed.ClientBatch,
        counts: Bool[Tensor, "C L"],
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C K d"], Float[Tensor, " C"]]:
        """One step of u for all examples together."""
        times = torch.zeros_like(batch.row_labels).scatter_add_(1, batch.slots, counts.to(rows.dtype))
        scores = (rows @ user[:, :, None]).squeeze(2)
        error, loss = self.walk.slope(scores, batch.row_labels), self.walk.value(scores, batch.row_labels)
        decay = 2 * self.reg_user * times.sum(1, keepdim=True) * user
        user = user - self.lr * (((error * times)[:, None] @ rows).squeeze(1) + decay)
        sent = times if self.repeated == "add" else times.clamp(max=1)  # at one u repetitions are all the same
        gradient = self.lr * sent[:, :, None] * (error[:, :, None] * user[:, None] + 2 * self.reg_item * rows)
        return user, gradient, (loss * times).sum(1)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """V ← V - Σ g."""
        gradient = inbox.total() if self.aggregation == "sum" else inbox.mean()
        items, step = server.shared["items"], gradient["items"]
        if self.catalogue > 0:
            step = step + CatalogueLoss(self.catalogue).rest(items, gradient["users"])
        return fed.Server({"items": items - self.server_lr * step})

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """U · v_j."""
        table, user = down.shared["items"], private["user"]
        if is_whole(items, len(table)):
            return user @ table.mT
        return (table[items] @ user[:, :, None]).squeeze(2)
