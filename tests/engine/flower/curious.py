"""A curious server: letters that no honest run sends, to nodes in this process, and what their answers tell it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch
from tests.engine.flower.inprocess import config_of

from fedrecgel.data.split import Split
from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.wire import Letter, prefixed
from fedrecgel.errors import PolicyError
from fedrecgel.tensors import Tensors

COUNTS = json.dumps(config_of("popularity").to_dict())
"""The method whose upload is the history itself."""
APP = {
    "client_app.py": """import pathlib
from flwr.clientapp import ClientApp

pathlib.Path({place!r}).write_text("code of the server ran on the node")
app = ClientApp()
""",
    "server_app.py": """import pathlib
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    letters = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in grid.get_node_ids()]
    replies = grid.send_and_receive(letters, timeout=100)
    said = [str(reply.error.reason) if reply.has_error() else "it answered" for reply in replies]
    pathlib.Path({answers!r}).write_text("\\n".join(said) + "\\nend")
""",
}
"""An app that writes a file wherever it is imported, and one that asks every node to import it."""


def letter(
    users: list[int], work: str = COUNTS, run: str = "a-run", round: int = 0, shared: Tensors | None = None
) -> Letter:
    """For training, with the tensors that everybody downloads."""
    tensors = {"ids": torch.tensor(users), **prefixed("shared", shared or {})}
    return Letter({"run": run, "round": round, "work": work}, tensors)


def histories(split: Split) -> list[set[int]]:
    """What the attack is after: the training items of every user."""
    return [set(split.train.items[a:b].tolist()) for a, b in zip(split.train.ptr, split.train.ptr[1:], strict=False)]


def counts_of(node: Node, users: list[int], run: str, n_items: int) -> set[int] | None:
    """The items in the sum over some users; None if the node refuses."""
    try:
        answer = node.answer("train", letter(users, run=run, shared={"counts": torch.zeros(n_items, 1).double()}))
    except PolicyError:
        return None
    return set(answer.tensors["sum/counts"].squeeze(1).nonzero().squeeze(1).tolist())


def read_one_by_one(node: Node, split: Split, users: list[int]) -> int:
    """How many histories letters for one user each give away."""
    truth = histories(split)
    return sum(counts_of(node, [user], f"user-{user}", split.n_items) == truth[user] for user in users)


class Rankings:
    """Questions that a rank answers: how many items of a set has each user not touched?"""

    def __init__(self, node: Node, users: list[int], split: Split) -> None:
        self.node, self.users, self.n_items = node, users, split.n_items
        self.n_answered = 0

    def ask(self, items: torch.Tensor, against: str) -> Letter | None:
        """Ranks when these items score 1 and all others 0; None if the node refuses."""
        self.n_answered += 1
        counts = torch.zeros(self.n_items, 1).double()
        counts[items] = 1.0
        asked = letter(self.users, run=f"run-{self.n_answered}", shared={"counts": counts})
        about: dict[str, Any] = {**asked.about, "held_out": "test", "against": against}
        try:
            return self.node.answer("rank", Letter(about, asked.tensors))
        except PolicyError:
            self.n_answered -= 1
            return None

    def held_out(self, against: str) -> list[int]:
        """Everybody's held-out item, one binary digit a letter; nobody is above it if it scores 1."""
        found = torch.zeros(len(self.users), dtype=torch.int64)
        for digit in range((self.n_items - 1).bit_length()):
            items = torch.arange(self.n_items)
            answer = self.ask(items[(items >> digit) % 2 == 1], against)
            if answer is not None:
                found += (answer.tensors["above"] == 0).long() << digit
        return found.tolist()

    def touched(self, order: Iterable[int], held_out: list[int]) -> list[set[int]]:
        """Everybody's items, one item a letter: an item that was touched is not ranked, so nothing is above."""
        found: list[set[int]] = [set() for _ in self.users]
        for item in order:
            answer = self.ask(torch.tensor([item]), "catalogue")
            if answer is None:
                break
            for at in (answer.tensors["above"] == 0).nonzero().squeeze(1).tolist():
                if held_out[at] != item:
                    found[at].add(item)
        return found


def f1(found: list[set[int]], truth: list[set[int]]) -> float:
    """Mean over users."""
    scores = [2 * len(a & b) / (len(a) + len(b)) if a | b else 1.0 for a, b in zip(found, truth, strict=True)]
    return sum(scores) / len(scores)
