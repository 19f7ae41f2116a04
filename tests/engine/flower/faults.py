"""Faults on the test's side: clients that stay away and nodes that fail. No node of the package can be told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedrecgel.draws import Draws
from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.wire import Letter
from fedrecgel.errors import RunError
from fedrecgel.runs.flower import work_of

MakeNode = Callable[[Path], Node]


class Absent(Node):
    """Some of its clients stay away, others in every round: they are taken out of the letter before it is read."""

    def __init__(self, place: Path, share: float) -> None:
        super().__init__(place, work_of)
        self._share = share

    def answer(self, kind: str, letter: Letter) -> Letter:
        """As the clients that are there."""
        if kind != "train":
            return super().answer(kind, letter)
        ids = letter.tensors["ids"]
        drawn = Draws(0).uniform("dropout", letter.about["round"], ids.numpy(), np.zeros(1, dtype=np.int64))
        here = torch.from_numpy(drawn >= self._share)
        if not here.any():
            return Letter({"round": letter.about["round"], "loss": 0.0, "refused": {}}, {"ids": ids[:0]})
        own = {
            name: value[here] for name, value in letter.tensors.items() if name.startswith(("ids", "own/", "which/"))
        }
        return super().answer(kind, replace(letter, tensors={**letter.tensors, **own}))


class Failing(Node):
    """Fails whenever it is to train."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, work_of)

    def answer(self, kind: str, letter: Letter) -> Letter:
        """An error."""
        if kind == "train":
            raise RunError("This node fails on purpose.")
        return super().answer(kind, letter)
