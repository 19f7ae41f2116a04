"""FedNCF: federated neural collaborative filtering.

Perifanis and Efraimidis, "Federated Neural Collaborative Filtering", Knowledge-Based Systems 242, 2022,
https://doi.org/10.1016/j.knosys.2022.108441.

Idea: the model, NeuMF unless told otherwise, is cut in two. User vectors stay on the devices; item tables and the
network are learnt together: each round a few clients send the gradient of their loss by the shared tensors, and the
server steps with the mean.

Paper to code:

===========================  =====================================================================
NeuMF                         `fedrecgel.models.neumf.NeuMF`
local loss                    sum of chunk means of binary cross-entropy: `ClientBatch.row_weights`
local user step               `FedNCF.step_user`
aggregation                   uniform mean of gradients, one Adam step: `FedNCF.server_update`
===========================  =====================================================================

Deviations: the authors published no code. This is the ρ = 0 path of the code released with FedRecGEL, which its authors
call FedNCF: gradients instead of weights travel, one step per round, Adam on both sides. The paper averages weights
after local epochs under secure aggregation: `fedncf-weights`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.errors import ConfigError
from fedrecgel.methods import author as fed
from fedrecgel.methods import spectral_start
from fedrecgel.models import find_model
from fedrecgel.models.base import INIT_SD, Model
from fedrecgel.models.gradients import Gradients, LocalLoss
from fedrecgel.models.neumf import NeuMF
from fedrecgel.numerics.optim import EPS, adam_moments, client_adam

Optimiser = Literal["adam", "sgd"]
RELEASED: dict[str, object] = {
    "fraction": 0.1,
    "model": "neumf",
    "gmf_dim": 32,
    "mlp_dim": 128,
    "user_optimiser": "adam",
    "user_lr": 0.1,
    "server_optimiser": "adam",
    "server_lr": 1e-3,
    "server_tau": EPS,
    "round_decay": 1.0,
    "reg_user": 0.0,
    "init": "normal",
    "start_popularity": 0.0,
}
"""Settings of the code released with FedRecGEL."""


@dataclass(frozen=True, kw_only=True)
class FedNCF(fed.Method):
    """NeuMF with private user vectors and uploaded gradients."""

    paper: ClassVar[str] = "Perifanis and Efraimidis, Knowledge-Based Systems 2022"
    sends: ClassVar[frozenset[str]] = frozenset({*NeuMF.tables, *NeuMF.network, *spectral_start.SENDS})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"released": RELEASED}
    search: ClassVar[Mapping[str, object]] = {
        "server_lr": {"low": 3e-4, "high": 1e-1, "log": True},
        "user_lr": {"low": 1e-2, "high": 1.0, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {"gmf_dim": 8, "mlp_dim": 16, "fraction": 1.0, "server_lr": 0.01}

    model: str = "neumf"
    """What scores: neumf; mf, a dot product with biases; mlp, a small tower; or one of your own in `MODELS`."""
    gmf_dim: fed.Size = 32
    """Size of the multiplicative embeddings (the paper's d); of all embeddings of `mf`."""
    mlp_dim: fed.Size = 128
    """Size of the embeddings that enter the tower; of all embeddings of `mlp`."""
    user_optimiser: Optimiser = "adam"
    """How a device steps its user vector; Adam's moments stay on the device over rounds."""
    user_lr: fed.Rate = 0.1
    """Learning rate of the user vector."""
    reg_user: fed.Radius = 2.0
    """Pull of the user vector towards 0, divided by the client's number of examples: a short history moves it less."""
    server_optimiser: Optimiser = "adam"
    """How the server steps the shared tensors with the mean gradient."""
    server_lr: fed.Rate = 5e-2
    """Learning rate of the server in round 0."""
    server_tau: fed.Radius = 1e-3
    """FedAdam's τ, how small a gradient still makes a whole step of Adam, where tables do not start at random; where
    they do, gradients are too small for it in the first rounds, and it is 1e-8."""
    round_decay: fed.Fraction = 0.97
    """Factor of this rate from round to round: later rounds overfit less."""
    init: Literal["auto", "normal", "spectral", "kept"] = "auto"
    """Item tables start at random, or from eigenvectors after three rounds of sums over all clients; auto: from
    eigenvectors where there are so many clients that these sums hide each of them; kept: from an earlier run."""
    start_rank: fed.Size = 32
    """How many eigenvectors; sums hide clients from 30 times as many of them on."""
    start_popularity: fed.Radius = 1.0
    """Standard deviation of one more column of the tables after them: the logarithm of how often an item occurs."""
    reduction: Literal["chunks", "mean"] = "chunks"
    """Local loss: sum of the means of chunks (released code), or mean over all examples (Algorithm 1)."""
    chunk: fed.Size = 128
    """Examples in a chunk."""
    weighting: Literal["uniform", "examples"] = "uniform"
    """Mean over clients: each counts the same, or by its number of examples."""

    def __post_init__(self) -> None:
        find_model(self.model)

    @property
    def backbone(self) -> Model:
        """The model."""
        return find_model(self.model)(gmf_dim=self.gmf_dim, mlp_dim=self.mlp_dim)

    @property
    def server_needs(self) -> fed.Need:
        """Adam squares the sum, and eigenvectors are no linear function of theirs; a plain step is linear."""
        return fed.Need.LINEAR if self.server_optimiser == "sgd" and not self.starts else fed.Need.SUM

    @property
    def starts(self) -> bool:
        """Whether there is a spectral start, or may be one."""
        return self.init in ("auto", "spectral")

    @property
    def tau(self) -> float:
        """Of the server's Adam."""
        return EPS if self.init == "normal" else self.server_tau

    def hides_from(self, shared: fed.Tensors) -> fed.Minima:
        """Of the sums of a spectral start, or of gradients."""
        return spectral_start.minima(self.start_rank) if spectral_start.begins(shared) else super().hides_from(shared)

    @property
    def magnitude(self) -> float:
        """Long histories reach 12 from random tables (FilmTrust); times examples, where clients count by them."""
        return fed.LARGE if self.weighting == "examples" else 2 * super().magnitude

    def leaves_device(self) -> frozenset[str]:
        """The gradients, if clients count by it their number of examples, and terms of the sums of a spectral start."""
        shared = frozenset({*self.backbone.tables, *self.backbone.network})
        start = spectral_start.SENDS if self.starts else frozenset()
        return shared | start | ({"weight"} if self.weighting == "examples" else set())

    def cohort(self, server: fed.Server, population: Int[Tensor, " m"], round: int, draws: fed.Draws) -> fed.Ids:
        """Everyone for the sums of a spectral start, then a share."""
        begins = spectral_start.begins(server.shared)
        return population if begins else super().cohort(server, population, round, draws)

    def settled(self, problem: fed.Problem, *, goes_on: bool = False) -> FedNCF:
        """A spectral start where enough clients hide each other in its sums, and there was no run before."""
        if self.init == "kept" and not goes_on:
            raise ConfigError(
                "method.init = 'kept' keeps the tables of an earlier run, and there is none. Name it with --from, or "
                "set method.init = 'auto'."
            )
        if self.init != "auto":
            return self
        return replace(self, init="kept" if goes_on else "spectral" if self._hides(problem) else "normal")

    def _hides(self, problem: fed.Problem) -> bool:
        """Whether there are enough clients for a spectral start."""
        return problem.n_clients >= spectral_start.minima(self.start_rank).sum

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """Random item tables and network."""
        initial = self.backbone.init_shared(problem.n_items, draws.generator("init/server"))
        shared = {name: problem.tensor(value) for name, value in initial.items()}
        kept = adam_moments(shared) if self.server_optimiser == "adam" else {}
        if self.init == "spectral" or (self.init == "auto" and self._hides(problem)):
            shared |= spectral_start.first_tensors(problem, self.start_rank, draws)
        return fed.Server(shared, kept)

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """User vectors N(0, 0.01²) and, for Adam, zero moments."""
        user = problem.tensor(INIT_SD * draws.normal("init/user", 0, ids.numpy(), self.backbone.user_dim))
        if self.user_optimiser == "sgd":
            return fed.State({"user": user})
        steps = torch.zeros(len(ids), dtype=torch.int64, device=user.device)
        zeros = torch.zeros_like(user)
        return fed.State({"user": user, "user_m": zeros, "user_v": zeros.clone(), "user_steps": steps})

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """One gradient: step the user vector with its part, send the rest."""
        if spectral_start.begins(down.shared):
            return fed.ClientResult(private, spectral_start.own_terms(down.shared, batch, round))
        shared = down.derive(self.backbone.prepare)
        found = self.backbone.gradients(shared, private["user"], self.local_loss(batch))
        return fed.ClientResult(self.step_user(private, found.user, batch), self.pack(found, batch), found.loss)

    def local_round(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.State:
        """The step of the user vector alone, as the shared part stays as it is."""
        shared, loss = down.derive(self.backbone.prepare), self.local_loss(batch)
        return self.step_user(private, self.backbone.gradients(shared, private["user"], loss, of="user").user, batch)

    def local_loss(self, batch: fed.ClientBatch) -> LocalLoss:
        """L_S of each client."""
        weights = batch.row_weights(self.chunk if self.reduction == "chunks" else None)
        return LocalLoss(batch.rows, batch.row_mask, batch.row_labels, weights)

    def step_user(self, private: fed.State, gradient: Float[Tensor, "C d"], batch: fed.ClientBatch) -> fed.State:
        """One step of the private user vectors: a normal prior weighs as much as `reg_user` examples."""
        if self.reg_user > 0:
            prior = self.reg_user / batch.n_examples.clamp(min=1).to(gradient.dtype)
            gradient = gradient + prior[:, None] * private["user"]
        if self.user_optimiser == "sgd":
            return fed.State({"user": private["user"] - self.user_lr * gradient})
        state = (private["user_m"], private["user_v"], private["user_steps"])
        new = client_adam(private["user"], gradient, *state, lr=self.user_lr)
        return fed.State(dict(zip(("user", "user_m", "user_v", "user_steps"), new, strict=True)))

    def pack(self, found: Gradients, batch: fed.ClientBatch) -> fed.Upload:
        """The gradient with respect to the shared tensors, ready to send."""
        n_examples = batch.n_examples.to(batch.labels.dtype)
        weight = torch.ones_like(n_examples) if self.weighting == "uniform" else n_examples
        return fed.Upload(batch.ids, found.network, found.rows, batch.rows, weight)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """One step with the mean gradient."""
        if spectral_start.begins(server.shared):
            return self.start_server(server, inbox, round)
        return self.step_server(server, inbox.mean(), round)

    def start_server(self, server: fed.Server, inbox: fed.Inbox, round: int) -> fed.Server:
        """One step of the spectral start."""
        sums, tables = inbox.total(), self.backbone.tables
        shared = spectral_start.step(server.shared, sums, round, tables, self.start_popularity)
        return fed.Server(shared, server.kept)

    def step_server(self, server: fed.Server, gradient: fed.Tensors, round: int) -> fed.Server:
        """Adam or plain gradient descent."""
        lr = self.server_lr * self.round_decay**round
        if self.server_optimiser == "adam":
            return fed.Server(*self.backbone.adam(server.shared, gradient, server.kept, lr, self.tau))
        return fed.Server({name: value - lr * gradient[name] for name, value in server.shared.items()})

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """Logits with the current shared tensors and the own user vector."""
        return self.backbone.scores(down.derive(self.backbone.prepare), private["user"], items)
