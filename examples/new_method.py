"""A new method in one file: matrix factorisation whose clients send item gradients.

Run `python examples/new_method.py`, or name the class wherever a method is named:

    fedrecgel train --method examples/new_method.py:TinyMF --rounds 60
    fedrecgel methods examples/new_method.py:TinyMF

To ship it, announce it as an entry point of your package, or move it to src/fedrecgel/methods/ and add its line there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

import fedrecgel as fr
from fedrecgel.methods import author as fed
from fedrecgel.numerics.losses import bce


@dataclass(frozen=True, kw_only=True)
class TinyMF(fr.Method):
    """Score = u · v; the user vector stays on the device."""

    paper: ClassVar[str] = "examples/new_method.py"
    sends: ClassVar[frozenset[str]] = frozenset({"item"})
    search: ClassVar[Mapping[str, object]] = {"lr": {"low": 0.2, "high": 20.0, "log": True}}  # for `fedrecgel tune`
    fraction: float = 0.5
    """Share of clients drawn each round."""
    lr: float = 2.0
    """Learning rate of users and items."""

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        return fed.Server({"item": problem.tensor(draws.generator("init").normal(0, 0.1, (problem.n_items, 16)))})

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        return fed.State({"user": problem.tensor(0.1 * draws.normal("init", 0, ids.numpy(), 16))})

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        user, rows, weights = private["user"], down.shared["item"][batch.rows], batch.row_weights(None)
        logits = (rows @ user[:, :, None]).squeeze(2)
        loss, error = bce(logits, batch.row_labels, weights)
        sent = {"item": error[:, :, None] * user[:, None]}
        upload = fed.Upload(batch.ids, {}, sent, batch.rows, torch.ones_like(loss))
        return fed.ClientResult(fed.State({"user": user - self.lr * (error[:, None] @ rows).squeeze(1)}), upload, loss)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        return fed.Server({"item": server.shared["item"] - self.lr * inbox.total()["item"]})

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        return (down.shared["item"][items] @ private["user"][:, :, None]).squeeze(2)


if __name__ == "__main__":
    from fedrecgel.testing import check_method

    check_method(TinyMF(), rounds=100)
    result = fr.train(TinyMF(), fr.load("demo").split(), rounds=60)
    for name, row in (("popularity", result.reference["popularity"]), ("TinyMF", result.metrics)):
        print(f"{name:<12}" + "  ".join(f"{metric} {100 * value:5.2f}" for metric, value in row.items()))
