"""PFedRec: dual personalisation on federated recommendation.

Zhang et al., "Dual Personalization on Federated Recommendation", IJCAI 2023, https://doi.org/10.24963/ijcai.2023/507.

Idea: no user vector: the user is the score function, which never leaves the device. Each client also fine-tunes the
item table it downloads and predicts with its own fine-tuned table; the server averages the fine-tuned tables.

Paper to code: s_j = w·e_j + b `models.linear.linear_scores`; score function first, then items under the new score
function `models.linear.alternate`; the fine-tuned table stays as rows on the table of its round `tables.PersonalTable`;
averaging `server_update`.

Deviations: as the released code, the two steps alternate per batch, by SGD with an item rate of lr·n·lr_eta. The code
also uploads and averages the bias but never uses it: here it stays private. It scores a user who never took part with
the table of round 0 (`unseen`), and applies cross-entropy to sigmoid outputs (`saturating_bce`). The noise of the
paper's private variant is in no code and not here. `alone` switches sharing off, which under the leaky negative rule
of that code (`sampling.exclude_heldout_from_negatives`) lets the held-out item win by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.models.linear import alternate, linear_scores, linear_start

RELEASED: dict[str, object] = {"fraction": 1.0, "dim": 32, "lr": 0.1, "lr_eta": 80.0, "batch_size": 256, "epochs": 1}
"""Settings of the released code."""


@dataclass(frozen=True, kw_only=True)
class PFedRec(fed.Method):
    """A private score function over a personally fine-tuned item table."""

    paper: ClassVar[str] = "Zhang et al., IJCAI 2023"
    sends: ClassVar[frozenset[str]] = frozenset({"items"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "released": RELEASED,
        "native": RELEASED | {"unseen": "initial"},
    }
    search: ClassVar[Mapping[str, object]] = {
        "lr": {"low": 1e-2, "high": 1.0, "log": True},
        "lr_eta": {"low": 1.0, "high": 100.0, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {"fraction": 1.0, "lr_eta": 1.0}

    fraction: fed.Fraction = 0.1
    """Share of clients drawn each round."""
    dim: fed.Size = 32
    """Size d of item vectors."""
    lr: fed.Rate = 0.1
    """Learning rate of the score function."""
    lr_eta: fed.Rate = 80.0
    """The item table learns at lr · n · lr_eta: gradients are batch means and the server divides by participants."""
    batch_size: fed.Size = 256
    """Examples in a local step."""
    epochs: fed.Size = 1
    """Passes over the round's examples."""
    saturating_bce: bool = True
    """No gradient from examples whose sigmoid is 0 or 1 in single precision, as in the released code."""
    unseen: Literal["global", "initial"] = "global"
    """A user who never took part scores with the current table, or with that of round 0 as in the released code."""
    alone: bool = False
    """Every device keeps tuning its own table and the server ignores uploads, to show what leaks into tables."""

    @property
    def server_needs(self) -> fed.Need:
        """A mean of changes, which may stay encrypted."""
        return fed.Need.LINEAR

    @property
    def magnitude(self) -> float:
        """Its item rate, which grows with the catalogue, makes changes in the hundreds."""
        return fed.LARGE

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """The item table, N(0, 1)."""
        return fed.Server({"items": self._start(problem, draws)})

    def _start(self, problem: fed.Problem, draws: fed.Draws) -> Float[Tensor, "n d"]:
        return problem.tensor(draws.public.generator("init/items").standard_normal((problem.n_items, self.dim)))

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """The same score function and table for all."""
        layer = problem.tensor(linear_start(self.dim, (self.dim + 1,), draws.public.generator("init/score")))
        trained = torch.zeros((), dtype=torch.int64, device=layer.device)
        table = fed.PersonalTable.common(self._start(problem, draws), len(ids))
        return fed.State.start(len(ids), {"w": layer[:-1], "b": layer[-1], "trained": trained}, {"items": table})

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """Fine-tune score function and items in turn, batch by batch."""
        base = down.shared["items"]
        table = private.tables["items"] if self.alone else fed.PersonalTable.common(base, len(batch.ids))
        before, lr_items = table.rows(batch.rows), self.lr * len(base) * self.lr_eta

        def step(
            own: tuple[Tensor, Tensor, Tensor], weights: Float[Tensor, "C K"], active: Float[Tensor, " C"]
        ) -> tuple[tuple[Tensor, Tensor, Tensor], Float[Tensor, " C"]]:
            rows, w, b = own
            loss, w, b, gradient = alternate(rows, w, b, batch.row_labels, weights, self.lr, self.saturating_bce)
            return (rows - lr_items * gradient, w, b), loss

        start = (before, private["w"], private["b"])
        (rows, w, b), loss = fed.local_epochs(step, start, batch, self.epochs, self.batch_size, round, draws)
        upload = fed.Upload(batch.ids, {}, {"items": rows - before}, batch.rows, torch.ones_like(b))
        tensors = {"w": w, "b": b, "trained": private["trained"] + 1}
        tuned = fed.State(tensors, {"items": table.with_rows(batch.rows, batch.row_mask, rows)})
        return fed.ClientResult(tuned, upload, loss)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """The mean of the fine-tuned tables."""
        if self.alone:
            return server
        return fed.Server({"items": server.shared["items"] + inbox.mean()["items"]})

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The own score function on the own table, as local training left them."""
        rows = private.tables["items"].rows(items)
        if self.unseen == "global":
            rows = torch.where(private["trained"][:, None, None] > 0, rows, down.shared["items"][items])
        return linear_scores(rows, private["w"], private["b"])
