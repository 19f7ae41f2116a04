"""FedMF: secure federated matrix factorisation.

Chai, Wang, Chen and Yang, "Secure Federated Matrix Factorization", IEEE Intelligent Systems 36(5), 2021,
https://arxiv.org/abs/1906.05108.

Idea: matrix factorisation in which user vectors stay on the devices and only item gradients travel, under an additively
homomorphic encryption: the server can add them up and take them off its encrypted table, but cannot read them.

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
from torch.nn.functional import softplus

from fedrecgel.data.federation import ClientBatch
from fedrecgel.draws import Draws
from fedrecgel.methods.base import (
    ClientResult,
    Download,
    Fraction,
    Inbox,
    Method,
    Need,
    Problem,
    Radius,
    Rate,
    Server,
    Size,
    Upload,
)
from fedrecgel.tables import State
from fedrecgel.tensors import Ids

INIT = 0.01
"""Standard deviation of the start, or the start itself."""


@dataclass(frozen=True, kw_only=True)
class FedMF(Method):
    """Matrix factorisation whose clients send item gradients that may stay encrypted."""

    paper: ClassVar[str] = "Chai et al., IEEE Intelligent Systems 2021"
    sends: ClassVar[frozenset[str]] = frozenset({"items"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "native": {"dim": 100, "lr": 1e-3, "loss": "squared", "init": "constant", "examples": "positives"}
        | {"repeated": "last", "precision": 1e-5}
    }
    search: ClassVar[Mapping[str, object]] = {
        "lr": {"low": 1e-2, "high": 1.0, "log": True},
        "server_lr": {"low": 3e-2, "high": 3.0, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {"lr": 0.1}

    fraction: Fraction = 1.0
    """Share of clients drawn each round."""
    dim: Size = 32
    """Size d of user and item vectors."""
    lr: Rate = 0.05
    """Learning rate of both vectors on the device (γ)."""
    server_lr: Rate = 1.0
    """What the server multiplies the clients' gradients by."""
    reg_user: Radius = 1e-4
    """Regularisation λ of the user vector."""
    reg_item: Radius = 1e-4
    """Regularisation µ of the item vectors."""
    loss: Literal["bce", "squared"] = "bce"
    """Cross-entropy, or squared error as published for ratings."""
    updates: Literal["each", "batch"] = "each"
    """Step the user vector after each example, as published, or once for all of them."""
    aggregation: Literal["sum", "mean"] = "sum"
    """The server takes off the sum, as published, or the mean of the gradients."""
    init: Literal["normal", "constant"] = "normal"
    """N(0, 0.01²), or 0.01 everywhere as in the released code: all coordinates stay equal then."""
    repeated: Literal["add", "last"] = "add"
    """An item drawn twice sends the sum of its gradients, or as in the released code the last one."""
    examples: Literal["sampled", "positives"] = "sampled"
    """Train on positives and sampled negatives, or on positives alone, which collapses to a constant."""
    precision: Radius = 0.0
    """Round what is sent to multiples of this, as 1e-5 of the released encryption; 0 does not."""

    @property
    def server_needs(self) -> Need:
        """A sum, which may stay encrypted."""
        return Need.LINEAR

    def footprint(self, n_examples: Int[Tensor, " C"], n_items: int) -> Int[Tensor, " C"]:
        """Many clients together: the loop over examples is long and every step of it small."""
        return n_examples // 64

    def init_server(self, problem: Problem, draws: Draws) -> Server:
        """The item table V."""
        if self.init == "constant":
            shape = (problem.n_items, self.dim)
            return Server({"items": torch.full(shape, INIT, dtype=problem.dtype, device=problem.device)})
        start = draws.generator("init/items").normal(0, INIT, (problem.n_items, self.dim))
        return Server({"items": problem.tensor(start)})

    def init_clients(self, problem: Problem, ids: Ids, draws: Draws) -> State:
        """User vectors."""
        if self.init == "constant":
            user = torch.full((self.dim,), INIT, dtype=problem.dtype, device=problem.device)
            return State({"user": user.expand(len(ids), -1)})
        return State({"user": problem.tensor(INIT * draws.normal("init/user", 0, ids.numpy(), self.dim))})

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """Step u through the examples; send the item gradients at the V of the round's start."""
        rows = down.shared["items"][batch.rows]
        counts = batch.mask if self.examples == "sampled" else batch.mask & (batch.labels > 0)
        walk = self.walk if self.updates == "each" else self._at_once
        user, gradient, loss = walk(private["user"], rows, batch, counts)
        if self.precision > 0:
            gradient = (gradient / self.precision).round() * self.precision
        upload = Upload(batch.ids, {}, {"items": gradient}, batch.rows, torch.ones_like(loss))
        return ClientResult(State({"user": user}), upload, loss / counts.sum(1).clamp(min=1))

    def walk(
        self, user: Float[Tensor, "C d"], rows: Float[Tensor, "C K d"], batch: ClientBatch, counts: Bool[Tensor, "C L"]
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C K d"], Float[Tensor, " C"]]:
        """One example after another: the error at the old u, the item gradient with the new one.

        Only the walk of u is a loop; an example that does not count takes a step of length 0.
        """
        client = torch.arange(len(user), device=user.device)
        items, labels, active = rows[client, batch.slots.T], batch.labels.T, counts.T.to(rows.dtype)
        decay = 1 - 2 * self.lr * self.reg_user * active[:, :, None]
        steps: list[tuple[Tensor, Tensor, Tensor]] = []
        for item, label, weight, kept in zip(items, labels, active, decay, strict=True):
            score = (user * item).sum(1)
            error = self._error(score, label).mul_(weight)
            user = torch.addcmul(user * kept, error[:, None], item, value=-self.lr)
            steps.append((score, error, user))
        scores, errors, users = (torch.stack(values) for values in zip(*steps, strict=True))
        own = self.lr * (errors[:, :, None] * users + 2 * self.reg_item * active[:, :, None] * items)
        if self.repeated == "last":
            own *= _last_of_its_slot(batch.slots.T, counts.T)[:, :, None]
        gradient = torch.zeros_like(rows).index_put_((client, batch.slots.T), own, accumulate=True)
        return user, gradient, (self._loss(scores, labels) * active).sum(0)

    def _at_once(
        self, user: Float[Tensor, "C d"], rows: Float[Tensor, "C K d"], batch: ClientBatch, counts: Bool[Tensor, "C L"]
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C K d"], Float[Tensor, " C"]]:
        """The same with one step of u for all examples."""
        times = torch.zeros_like(batch.row_labels).scatter_add_(1, batch.slots, counts.to(rows.dtype))
        scores = (rows @ user[:, :, None]).squeeze(2)
        error, loss = self._error(scores, batch.row_labels), self._loss(scores, batch.row_labels)
        decay = 2 * self.reg_user * times.sum(1, keepdim=True) * user
        user = user - self.lr * (((error * times)[:, None] @ rows).squeeze(1) + decay)
        sent = times if self.repeated == "add" else times.clamp(max=1)  # at one u repetitions are all the same
        gradient = self.lr * sent[:, :, None] * (error[:, :, None] * user[:, None] + 2 * self.reg_item * rows)
        return user, gradient, (loss * times).sum(1)

    def _error(self, scores: Tensor, labels: Tensor) -> Tensor:
        """∂loss/∂score."""
        return 2 * (scores - labels) if self.loss == "squared" else torch.sigmoid(scores) - labels

    def _loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        return (scores - labels).square() if self.loss == "squared" else softplus(scores) - labels * scores

    def server_update(self, server: Server, inbox: Inbox, round: int, draws: Draws) -> Server:
        """V ← V - Σ g."""
        gradient = inbox.total() if self.aggregation == "sum" else inbox.mean()
        return Server({"items": server.shared["items"] - self.server_lr * gradient["items"]})

    def score(self, private: State, down: Download, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """U · v_j."""
        return (down.shared["items"][items] @ private["user"][:, :, None]).squeeze(2)


def _last_of_its_slot(slots: Int[Tensor, "K C"], counts: Bool[Tensor, "K C"]) -> Bool[Tensor, "K C"]:
    """The last example that counts of each client's item."""
    position = torch.arange(1, len(slots) + 1, device=slots.device)[:, None] * counts
    last = torch.zeros_like(slots).scatter_reduce_(0, slots, position, "amax")
    return counts & (position == last.gather(0, slots))
