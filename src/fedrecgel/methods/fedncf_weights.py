"""FedNCF-weights: federated neural collaborative filtering whose clients train weights and send them.

Perifanis and Efraimidis, "Federated Neural Collaborative Filtering", Knowledge-Based Systems 242, 2022,
https://doi.org/10.1016/j.knosys.2022.108441.

Idea: the NeuMF model of `fedncf`, learnt as the paper describes it: each round a few clients train item tables, network
and their own user vector for some epochs and send the new weights. Plain averaging suits item rows badly, as most
clients leave most rows alone; so the server averages in two parts, rows over those who changed them, and the network
as FedAvg does.

Paper to code: a network of one's own `NeuMF.logits`; local epochs `client_update`; the two averages
`server_update`.

Deviations: the authors published no code. What their two averages are in detail is a reconstruction: a row takes the
mean of its changes over those who trained on it, the network the mean of changes weighted by the number of examples;
`aggregation = "mean"` is plain averaging. Secure aggregation changes no number and needs nothing but these sums.
Local Adam starts afresh each round for what is shared, as the weights it belonged to were averaged away; that of the
user vector, which nobody else changes, stays on the device. Weights travel as changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.models.base import INIT_SD
from fedrecgel.models.gradients import differentiate
from fedrecgel.models.neumf import NeuMF
from fedrecgel.numerics.optim import AdamState, active_adam, fresh_adam

TABLES, SHARED = NeuMF.tables, frozenset({*NeuMF.tables, *NeuMF.network})

RELEASED: dict[str, object] = {
    "fraction": 0.1,
    "gmf_dim": 32,
    "mlp_dim": 128,
    "lr": 1e-3,
    "user_lr": 0.1,
    "epochs": 2,
    "batch_size": 128,
    "aggregation": "mf",
}
"""Epochs, batches and averages of the paper, at the rates of `fedncf`."""


@dataclass(frozen=True, kw_only=True)
class FedNCFWeights(fed.Method):
    """NeuMF with private user vectors and uploaded weights."""

    paper: ClassVar[str] = "Perifanis and Efraimidis, Knowledge-Based Systems 2022"
    sends: ClassVar[frozenset[str]] = SHARED | {"touched"}
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"released": RELEASED}
    search: ClassVar[Mapping[str, object]] = {
        "lr": {"low": 1e-4, "high": 1e-2, "log": True},
        "user_lr": {"low": 1e-2, "high": 1.0, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {"gmf_dim": 8, "mlp_dim": 16, "fraction": 1.0, "lr": 0.03, "epochs": 1}

    gmf_dim: fed.Size = 32
    """Size of the multiplicative embeddings (the paper's d)."""
    mlp_dim: fed.Size = 128
    """Size of the embeddings that enter the tower."""
    lr: fed.Rate = 1e-3
    """Learning rate of the local Adam on item rows and network."""
    user_lr: fed.Rate = 0.1
    """Learning rate of the local Adam on the user vector."""
    epochs: fed.Size = 2
    """Passes over the round's examples (E)."""
    batch_size: fed.Size = 128
    """Examples in a local step (B)."""
    aggregation: Literal["mf", "mean"] = "mf"
    """Item rows over those who changed them and the network by examples, or the plain mean of all weights."""

    @property
    def backbone(self) -> NeuMF:
        """The model."""
        return NeuMF(gmf_dim=self.gmf_dim, mlp_dim=self.mlp_dim)

    @property
    def server_needs(self) -> fed.Need:
        """Sums of changes are divided by sums of counts; the plain mean may stay encrypted."""
        return fed.Need.SUM if self.aggregation == "mf" else fed.Need.LINEAR

    @property
    def magnitude(self) -> float:
        """Changes times numbers of examples."""
        return fed.LARGE if self.aggregation == "mf" else super().magnitude

    def leaves_device(self) -> frozenset[str]:
        """The changes and, for the two averages, which rows changed and the number of examples."""
        return self.sends | {"weight"} if self.aggregation == "mf" else SHARED

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """Random item tables and network, those of `fedncf`."""
        initial = self.backbone.init_shared(problem.n_items, draws.generator("init/server"))
        return fed.Server({name: problem.tensor(value) for name, value in initial.items()})

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """User vectors N(0, 0.01²), those of `fedncf`, and zero moments."""
        user = problem.tensor(INIT_SD * draws.normal("init/user", 0, ids.numpy(), self.backbone.user_dim))
        return _private(user, fresh_adam(user))

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """E epochs of minibatch Adam on copies of everything; send what changed."""
        before = {name: down.shared[name][batch.rows] for name in TABLES}
        for name in sorted(SHARED - {*TABLES}):
            before[name] = down.shared[name].expand(len(batch.ids), -1, -1)
        moments = {name: fresh_adam(value) for name, value in before.items()}
        moments["user"] = AdamState(private["user_m"], private["user_v"], private["user_steps"])

        def step(
            state: tuple[fed.Tensors, dict[str, AdamState]], weights: Float[Tensor, "C K"], active: Float[Tensor, " C"]
        ) -> tuple[tuple[fed.Tensors, dict[str, AdamState]], Float[Tensor, " C"]]:
            own, adam = dict(state[0]), dict(state[1])
            loss, gradients = differentiate(self.backbone.logits, own, batch.row_labels, weights)
            for name, gradient in gradients.items():
                lr = self.user_lr if name == "user" else self.lr
                own[name], adam[name] = active_adam(own[name], gradient, adam[name], active > 0, lr)
            return (own, adam), loss

        start = ({**before, "user": private["user"]}, moments)
        (own, moments), loss = fed.local_epochs(step, start, batch, self.epochs, self.batch_size, round, draws)
        changes = {name: own[name] - start for name, start in before.items()}
        return fed.ClientResult(_private(own["user"], moments["user"]), self._pack(changes, batch), loss)

    def local_round(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.State:
        """Steps of the user vector alone, as the shared part stays as it is."""
        rows = {name: down.shared[name][batch.rows] for name in TABLES}
        network = {name: down.shared[name].expand(len(batch.ids), -1, -1) for name in SHARED - {*TABLES}}

        def logits(own: fed.Tensors) -> Float[Tensor, "C K"]:
            return self.backbone.logits({**rows, **network, **own})

        def step(
            state: tuple[Tensor, AdamState], weights: Float[Tensor, "C K"], active: Float[Tensor, " C"]
        ) -> tuple[tuple[Tensor, AdamState], Float[Tensor, " C"]]:
            loss, gradients = differentiate(logits, {"user": state[0]}, batch.row_labels, weights)
            return active_adam(state[0], gradients["user"], state[1], active > 0, self.user_lr), loss

        start = (private["user"], AdamState(private["user_m"], private["user_v"], private["user_steps"]))
        state, _ = fed.local_epochs(step, start, batch, self.epochs, self.batch_size, round, draws)
        return _private(*state)

    def _pack(self, changes: fed.Tensors, batch: fed.ClientBatch) -> fed.Upload:
        """What leaves. The channel multiplies by the weight: rows, where all count the same, are divided by it."""
        network = {name: value for name, value in changes.items() if name not in TABLES}
        rows = {name: changes[name] for name in TABLES}
        counts = batch.n_examples.to(batch.labels.dtype)
        if self.aggregation == "mean":
            return fed.Upload(batch.ids, network, rows, batch.rows, torch.ones_like(counts))
        rows["touched"] = batch.row_mask[:, :, None].to(counts.dtype)
        per_example = 1 / counts.clamp(min=1)[:, None, None]
        return fed.Upload(batch.ids, network, {name: v * per_example for name, v in rows.items()}, batch.rows, counts)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """Add the mean change: of a row over those who changed it, of the network over examples."""
        mean = inbox.mean()
        if self.aggregation == "mf":
            touched = mean.pop("touched")
            mean |= {name: mean[name] / touched.where(touched > 0, 1) for name in TABLES}
        return fed.Server({name: value + mean[name] for name, value in server.shared.items()})

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """Logits with the current shared tensors and the own user vector."""
        return self.backbone.scores(down.derive(self.backbone.prepare), private["user"], items)


def _private(user: Float[Tensor, "C d"], adam: AdamState) -> fed.State:
    return fed.State({"user": user, "user_m": adam.first, "user_v": adam.second, "user_steps": adam.steps})
