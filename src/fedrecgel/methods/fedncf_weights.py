"""FedNCF-weights: federated neural collaborative filtering whose clients train weights and send them.

Perifanis and Efraimidis, "Federated Neural Collaborative Filtering", Knowledge-Based Systems 242, 2022,
https://doi.org/10.1016/j.knosys.2022.108441.

Idea: the NeuMF model of `fedncf`, learnt as the paper describes it: each round a few clients train item tables, network
and their own user vector for some epochs and send the new weights. Plain averaging suits item rows badly, as most
clients leave most rows alone; so the server averages in two parts, rows over those who changed them, and the network
as FedAvg does.

Paper to code: a network of one's own `models.neumf_copies.copies_scores`; local epochs `client_update`; the two
averages `server_update`.

Deviations: the authors published no code. What their two averages are in detail is a reconstruction: a row takes the
mean of its changes over those who trained on it, the network the mean of changes weighted by the number of examples;
`aggregation = "mean"` is plain averaging. Secure aggregation changes no number and needs nothing but these sums.
Local Adam starts afresh each round for what is shared, as the weights it belonged to were averaged away; that of the
user vector, which nobody else changes, stays on the device. Weights travel as changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.data.federation import ClientBatch
from fedrecgel.draws import Draws
from fedrecgel.methods.base import (
    ClientResult,
    Download,
    Inbox,
    Method,
    Need,
    Problem,
    Rate,
    Server,
    Size,
    Upload,
)
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.models.neumf import INIT_SD, NeuMF
from fedrecgel.models.neumf_copies import copies_gradients
from fedrecgel.numerics.optim import AdamState, active_adam, fresh_adam
from fedrecgel.tables import State
from fedrecgel.tensors import Ids, Tensors

TABLES = ("item_gmf", "item_mlp")


@dataclass(frozen=True, kw_only=True)
class FedNCFWeights(Method):
    """NeuMF with private user vectors and uploaded weights."""

    paper: ClassVar[str] = "Perifanis and Efraimidis, Knowledge-Based Systems 2022"
    sends: ClassVar[frozenset[str]] = FedNCF.sends | {"touched"}

    gmf_dim: Size = 32
    """Size of the multiplicative embeddings (the paper's d)."""
    mlp_dim: Size = 128
    """Size of the embeddings that enter the tower."""
    lr: Rate = 1e-3
    """Learning rate of the local Adam on item rows and network."""
    user_lr: Rate = 0.1
    """Learning rate of the local Adam on the user vector."""
    epochs: Size = 2
    """Passes over the round's examples (E)."""
    batch_size: Size = 128
    """Examples in a local step (B)."""
    aggregation: Literal["mf", "mean"] = "mf"
    """Item rows over those who changed them and the network by examples, or the plain mean of all weights."""

    @property
    def model(self) -> NeuMF:
        """The backbone."""
        return NeuMF(self.gmf_dim, self.mlp_dim)

    @property
    def server_needs(self) -> Need:
        """Sums of changes are divided by sums of counts; the plain mean may stay encrypted."""
        return Need.SUM if self.aggregation == "mf" else Need.LINEAR

    def leaves_device(self) -> frozenset[str]:
        """The changes and, for the two averages, which rows changed and the number of examples."""
        return self.sends | {"weight"} if self.aggregation == "mf" else FedNCF.sends

    def footprint(self, n_examples: Int[Tensor, " C"], n_items: int) -> Int[Tensor, " C"]:
        """A network and its moments for each client take the room of some hundred examples."""
        return n_examples + 128

    def init_server(self, problem: Problem, draws: Draws) -> Server:
        """Random item tables and network, those of `fedncf`."""
        initial = self.model.init_shared(problem.n_items, draws.generator("init/server"))
        return Server({name: problem.tensor(value) for name, value in initial.items()})

    def init_clients(self, problem: Problem, ids: Ids, draws: Draws) -> State:
        """User vectors N(0, 0.01²), those of `fedncf`, and zero moments."""
        user = problem.tensor(INIT_SD * draws.normal("init/user", 0, ids.numpy(), self.model.user_dim))
        return _private(user, fresh_adam(user))

    def unpack(self, shared: Tensors) -> Tensors:
        """Add the item half of layer 1, for scores."""
        return {**shared, "item_half": self.model.item_half(shared)}

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """E epochs of minibatch Adam on copies of everything; send what changed."""
        before = {name: down.shared[name][batch.rows] for name in TABLES}
        for name in sorted(FedNCF.sends - {*TABLES}):
            before[name] = down.shared[name].expand(len(batch.ids), -1, -1)
        own = {**before, "user": private["user"]}
        moments = {name: fresh_adam(value) for name, value in before.items()}
        moments["user"] = AdamState(private["user_m"], private["user_v"], private["user_steps"])
        losses, batches = (private["user"].new_zeros(len(batch.ids)) for _ in range(2))
        for epoch in range(self.epochs):
            for weights in batch.steps(self.batch_size, round, draws, epoch):
                active = weights.sum(1) > 0
                loss, gradients = copies_gradients(self.model, own, batch.row_labels, weights)
                for name, gradient in gradients.items():
                    lr = self.user_lr if name == "user" else self.lr
                    own[name], moments[name] = active_adam(own[name], gradient, moments[name], active, lr)
                losses += loss
                batches += active
        changes = {name: own[name] - start for name, start in before.items()}
        upload = self._packed(changes, batch)
        return ClientResult(_private(own["user"], moments["user"]), upload, losses / batches.clamp(min=1))

    def _packed(self, changes: Tensors, batch: ClientBatch) -> Upload:
        """What leaves. The channel multiplies by the weight: rows, where all count the same, are divided by it."""
        network = {name: value for name, value in changes.items() if name not in TABLES}
        rows = {name: changes[name] for name in TABLES}
        counts = batch.n_examples.to(batch.labels.dtype)
        if self.aggregation == "mean":
            return Upload(batch.ids, network, rows, batch.rows, torch.ones_like(counts))
        rows["touched"] = batch.row_mask[:, :, None].to(counts.dtype)
        per_example = 1 / counts.clamp(min=1)[:, None, None]
        return Upload(batch.ids, network, {name: v * per_example for name, v in rows.items()}, batch.rows, counts)

    def server_update(self, server: Server, inbox: Inbox, round: int, draws: Draws) -> Server:
        """Add the mean change: of a row over those who changed it, of the network over examples."""
        mean = inbox.mean()
        if self.aggregation == "mf":
            touched = mean.pop("touched")
            mean |= {name: mean[name] / touched.where(touched > 0, 1) for name in TABLES}
        return Server({name: value + mean[name] for name, value in server.shared.items()})

    def score(self, private: State, down: Download, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """Logits with the current shared tensors and the own user vector."""
        return self.model.scores(self.model.view(down.shared, items), private["user"])


def _private(user: Float[Tensor, "C d"], adam: AdamState) -> State:
    return State({"user": user, "user_m": adam.first, "user_v": adam.second, "user_steps": adam.steps})
