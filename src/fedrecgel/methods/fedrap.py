"""FedRAP: federated recommendation with additive personalisation.

Li, Long and Zhou, "Federated Recommendation with Additive Personalization", ICLR 2024,
https://openreview.net/forum?id=xkXdE81mOK.

Idea: an item's vector is the sum of a common one, C, and a personal one, D. A term pushes the two apart, an L1 term
makes C sparse, and both weights grow during training. Only C is exchanged.

Paper to code: s_j = w·(D_j + C_j) + b and its gradient `client_update`; curriculum of λ and µ `vary`;
averaging of C `server_update`; D_u = a_u (D_0 + Δ_u) `tables.PersonalTable`.

Deviations: as in the released code both regularisers see the rows of the batch, not whole tables, rates shrink by 0.97
per round and 0.95 per batch, and weight decay hits every row. The code computes the curriculum but trains with the
constants (`vary = "fixed"`, the variant `native`). It selects the round on test data; we do not. Clients send the
change of the rows they touched and one number a by which decay shrank all others, so that C' = mean(a) C + changes.
`alone` keeps C as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.errors import ConfigError
from fedrecgel.methods import author as fed
from fedrecgel.models.linear import linear_scores, linear_start
from fedrecgel.numerics.losses import bce

RELEASED: dict[str, object] = {
    "fraction": 1.0,
    "dim": 32,
    "lr_network": 0.5,
    "lr_items": 200.0,
    "round_decay": 0.97,
    "batch_decay": 0.95,
    "weight_decay": 1e-4,
    "lambda_": 0.1,
    "mu": 0.1,
    "batch_size": 2048,
    "epochs": 10,
    "tolerance": 1e-4,
}
"""Defaults of the released code."""
FOLD_IN_PASSES = 30
"""Passes over its examples in which a newcomer learns its personal table and score layer."""


class Descended(NamedTuple):
    """Where local training ends."""

    w: Float[Tensor, "C d"]
    b: Float[Tensor, " C"]
    own: Float[Tensor, "C K d"]
    """Rows of D."""
    common: Float[Tensor, "C K d"]
    """Rows of C."""
    shrunk: Float[Tensor, " C"]
    """a: what decay left of all other rows."""
    loss: Float[Tensor, " C"]


@dataclass(frozen=True, kw_only=True)
class FedRAP(fed.Method):
    """A common sparse item table plus a personal one."""

    paper: ClassVar[str] = "Li et al., ICLR 2024"
    sends: ClassVar[frozenset[str]] = frozenset({"common", "decay"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "released": RELEASED,
        "native": RELEASED | {"vary": "fixed"},
    }
    search: ClassVar[Mapping[str, object]] = {
        # From what its authors take on MovieLens to their default.
        "lr_network": {"low": 1e-4, "high": 1.0, "log": True},
        # The mean over participants divides what a row of C learns, so large catalogues need large rates. Here
        # they end below 1/weight_decay; with weight_decay = 1e-6, as its authors take on MovieLens, search up to 1e5.
        "lr_items": {"low": 90.0, "high": 9000.0, "log": True},
        "lambda_": {"low": 1e-4, "high": 3e-1, "log": True},
        "mu": {"low": 1e-3, "high": 3e-1, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {
        "fraction": 1.0,
        "weight_decay": 1e-4,
        "lr_items": 60.0,
        "lr_network": 0.1,
        "lambda_": 0.01,
        "mu": 1e-3,
        "epochs": 3,
        "round_decay": 0.99,
    }

    fraction: fed.Fraction = 0.1
    """Share of clients drawn each round."""
    dim: fed.Size = 32
    """Size d of item vectors."""
    lr_network: fed.Rate = 0.02
    """Learning rate of the score layer in round 0."""
    lr_items: fed.Rate = 3000.0
    """Learning rate of both item tables in round 0 (lr_args)."""
    round_decay: fed.Fraction = 0.97
    """Factor of both rates from round to round."""
    batch_decay: fed.Fraction = 0.95
    """Factor of both rates from batch to batch; starts anew each round."""
    weight_decay: fed.Radius = 1e-6
    """Decay of all private and common tensors, on every row."""
    lambda_: fed.Radius = 4e-4
    """Weight λ of the term that pushes C and D apart."""
    mu: fed.Radius = 3e-3
    """Weight µ of the L1 norm of C."""
    vary: Literal["tanh", "fixed"] = "tanh"
    """λ and µ times tanh(round / 10), as the paper intends, or in full from the start, as the code does."""
    batch_size: fed.Size = 2048
    """Examples in a local step."""
    epochs: fed.Size = 10
    """At most so many passes over the round's examples."""
    tolerance: fed.Radius = 1e-4
    """A client stops when its average loss so far changes by less than this share from one pass to the next."""
    saturating_bce: bool = True
    """No gradient from examples whose sigmoid is 0 or 1 in single precision, as in the released code."""
    alone: bool = False
    """The server ignores uploads and C stays as it is, to show what leaks into personal tables."""

    def __post_init__(self) -> None:
        for name in ("lr_network", "lr_items"):
            if getattr(self, name) * self.weight_decay >= 1:
                raise ConfigError(
                    f"method.{name} * method.weight_decay should be below 1, else decay turns signs around. "
                    f"Found {getattr(self, name)} * {self.weight_decay}."
                )

    @property
    def server_needs(self) -> fed.Need:
        """Weight decay multiplies what the server holds by what it received."""
        return fed.Need.SUM if self.weight_decay > 0 else fed.Need.LINEAR

    @property
    def magnitude(self) -> float:
        """Entries of the common table pass the usual bound within two rounds at default rates."""
        return fed.LARGE

    @property
    def fold_in_rounds(self) -> int:
        """So many that they have about 30 passes together."""
        return math.ceil(FOLD_IN_PASSES / self.epochs)

    def leaves_device(self) -> frozenset[str]:
        """Without weight decay there is no factor to send."""
        return self.sends if self.weight_decay > 0 else self.sends - {"decay"}

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """C, N(0, 1)."""
        return fed.Server({"common": self._start("common", problem, draws)})

    def _start(self, name: str, problem: fed.Problem, draws: fed.Draws) -> Float[Tensor, "n d"]:
        return problem.tensor(draws.public.generator(f"init/{name}").standard_normal((problem.n_items, self.dim)))

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """The same score layer and D for all."""
        layer = problem.tensor(linear_start(self.dim, (self.dim + 1,), draws.public.generator("init/score")))
        table = fed.PersonalTable.common(self._start("personal", problem, draws), len(ids))
        return fed.State.start(len(ids), {"w": layer[:-1], "b": layer[-1]}, {"personal": table})

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """SGD on w, b, D and C at once, until the loss stands still."""
        found = self._descend(private, down, batch, round, draws)
        sent = found.common - found.shrunk[:, None, None] * down.shared["common"][batch.rows]
        dense = {"decay": found.shrunk} if self.weight_decay > 0 else {}
        rows_sent = {"common": sent * batch.row_mask[:, :, None]}
        upload = fed.Upload(batch.ids, dense, rows_sent, batch.rows, torch.ones_like(found.b))
        return fed.ClientResult(self._keep(private, batch, found), upload, found.loss)

    def local_round(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.State:
        """SGD on w, b and D: what would go into C would be lost, as C stays as it is."""
        return self._keep(private, batch, self._descend(private, down, batch, round, draws, frozen=True))

    def _keep(self, private: fed.State, batch: fed.ClientBatch, found: Descended) -> fed.State:
        table = private.tables["personal"].with_rows(batch.rows, batch.row_mask, found.own, found.shrunk)
        return fed.State({"w": found.w, "b": found.b}, {"personal": table})

    def _descend(
        self,
        private: fed.State,
        down: fed.Download,
        batch: fed.ClientBatch,
        round: int,
        draws: fed.Draws,
        *,
        frozen: bool = False,
    ) -> Descended:
        """Passes over the examples until the loss stands still; a frozen C does not move."""
        w, b = private["w"], private["b"]
        own, common = private.tables["personal"].rows(batch.rows), down.shared["common"][batch.rows]
        growth = math.tanh(round / 10) if self.vary == "tanh" else 1.0
        shrunk, running = torch.ones_like(b), torch.ones_like(b)  # a, and 1 until a client stops
        before = last = torch.full_like(b, torch.inf)
        rate = torch.full_like(b, self.round_decay**round)
        losses, n_seen = torch.zeros_like(b), torch.zeros_like(b)  # of all passes so far: a running average
        for epoch in range(self.epochs):
            for number, weights in enumerate(batch.steps(self.batch_size, round, draws, epoch)):
                size = (batch.n_examples - number * self.batch_size).clamp(min=0, max=self.batch_size)
                active = running * (weights.sum(1) > 0)
                weights = weights * active[:, None]
                rows, eta = own + common, self.lr_items * rate * active
                value, slope = bce(linear_scores(rows, w, b), batch.row_labels, weights, saturating=self.saturating_bce)
                apart, share = own - common, weights[:, :, None] / self.dim
                terms = share * (self.mu * common.abs() - self.lambda_ * apart.square())
                losses += active * size * (value + growth * terms.sum((1, 2)))
                n_seen += active * size
                push = 2 * self.lambda_ * growth * share * apart
                item = slope[:, :, None] * w[:, None]
                keep = 1 - eta * self.weight_decay
                own = keep[:, None, None] * own - eta[:, None, None] * (item - push)
                if not frozen:
                    sparse = self.mu * growth * share * common.sign()
                    common = keep[:, None, None] * common - eta[:, None, None] * (item + push + sparse)
                eta_w = self.lr_network * rate * active
                keep_w = 1 - eta_w * self.weight_decay
                w = keep_w[:, None] * w - eta_w[:, None] * (slope[:, None] @ rows).squeeze(1)
                b = keep_w * b - eta_w * slope.sum(1)
                shrunk = shrunk * keep
                rate = torch.where(active > 0, rate * self.batch_decay, rate)
            before, last = last, losses / n_seen.clamp(min=1)
            running = running * ~((before - last).abs() < self.tolerance * before.abs())  # no stop at 0 · ∞
            if not running.any():
                break
        return Descended(w, b, own, common, shrunk, last)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """The mean of the clients' C."""
        if self.alone:
            return server
        mean = inbox.mean()
        kept = mean["decay"] * server.shared["common"] if self.weight_decay > 0 else server.shared["common"]
        return fed.Server({"common": kept + mean["common"]})

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The own layer on the new C plus the own D."""
        rows = private.tables["personal"].rows(items) + down.shared["common"][items]
        return linear_scores(rows, private["w"], private["b"])
