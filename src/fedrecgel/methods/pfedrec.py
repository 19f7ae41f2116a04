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
    Rate,
    Server,
    Size,
    Upload,
)
from fedrecgel.models.linear import alternate, linear_scores, linear_start
from fedrecgel.tables import PersonalTable, State
from fedrecgel.tensors import Ids


@dataclass(frozen=True, kw_only=True)
class PFedRec(Method):
    """A private score function over a personally fine-tuned item table."""

    paper: ClassVar[str] = "Zhang et al., IJCAI 2023"
    sends: ClassVar[frozenset[str]] = frozenset({"items"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"native": {"unseen": "initial"}}

    fraction: Fraction = 1.0
    """Share of clients drawn each round."""
    dim: Size = 32
    """Size d of item vectors."""
    lr: Rate = 0.1
    """Learning rate of the score function."""
    lr_eta: Rate = 80.0
    """The item table learns at lr · n · lr_eta: gradients are batch means and the server divides by participants."""
    batch_size: Size = 256
    """Examples in a local step."""
    epochs: Size = 1
    """Passes over the round's examples."""
    saturating_bce: bool = True
    """No gradient from examples whose sigmoid is 0 or 1 in single precision, as in the released code."""
    unseen: Literal["global", "initial"] = "global"
    """A user who never took part scores with the current table, or with that of round 0 as in the released code."""
    alone: bool = False
    """Every device tunes its own table for ever and the server ignores uploads, to show what leaks into tables."""

    @property
    def server_needs(self) -> Need:
        """A mean of changes, which may stay encrypted."""
        return Need.LINEAR

    def init_server(self, problem: Problem, draws: Draws) -> Server:
        """The item table, N(0, 1)."""
        return Server({"items": self._start(problem, draws)})

    def _start(self, problem: Problem, draws: Draws) -> Float[Tensor, "n d"]:
        return problem.tensor(draws.generator("init/items").standard_normal((problem.n_items, self.dim)))

    def init_clients(self, problem: Problem, ids: Ids, draws: Draws) -> State:
        """The same score function and table for all."""
        layer = problem.tensor(linear_start(self.dim, (self.dim + 1,), draws.generator("init/score")))
        trained = torch.zeros((), dtype=torch.int64, device=layer.device)
        table = PersonalTable.common(self._start(problem, draws), len(ids))
        tensors = {"w": layer[:-1].expand(len(ids), -1), "b": layer[-1].expand(len(ids))}
        return State({**tensors, "trained": trained.expand(len(ids))}, {"items": table})

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """Fine-tune score function and items in turn, batch by batch."""
        w, b, base = private["w"], private["b"], down.shared["items"]
        table = private.tables["items"] if self.alone else PersonalTable.common(base, len(w))
        rows = before = table.rows(batch.rows)
        lr_items = self.lr * len(base) * self.lr_eta
        losses, batches = torch.zeros_like(b), torch.zeros_like(b)
        for epoch in range(self.epochs):
            for weights in batch.steps(self.batch_size, round, draws, epoch):
                loss, w, b, gradient = alternate(
                    rows, w, b, batch.row_labels, weights, lr=self.lr, saturating=self.saturating_bce
                )
                rows = rows - lr_items * gradient
                losses += loss
                batches += weights.sum(1) > 0
        upload = Upload(batch.ids, {}, {"items": rows - before}, batch.rows, torch.ones_like(b))
        tensors = {"w": w, "b": b, "trained": private["trained"] + 1}
        tuned = State(tensors, {"items": table.with_rows(batch.rows, batch.row_mask, rows)})
        return ClientResult(tuned, upload, losses / batches.clamp(min=1))

    def server_update(self, server: Server, inbox: Inbox, round: int, draws: Draws) -> Server:
        """The mean of the fine-tuned tables."""
        if self.alone:
            return server
        return Server({"items": server.shared["items"] + inbox.mean()["items"]})

    def score(self, private: State, down: Download, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """The own score function on the own table, as local training left them."""
        rows = private.tables["items"].rows(items)
        if self.unseen == "global":
            rows = torch.where(private["trained"][:, None, None] > 0, rows, down.shared["items"][items])
        return linear_scores(rows, private["w"], private["b"])
