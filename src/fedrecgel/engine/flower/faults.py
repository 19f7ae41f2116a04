"""Faults on purpose: clients that stay away and a node that answers badly, to see what a run makes of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Bool
from msgspec import Meta
from torch import Tensor

from fedrecgel.draws import Draws
from fedrecgel.engine.flower.wire import Letter
from fedrecgel.errors import RunError
from fedrecgel.tensors import Ids

Answer = Literal[
    "not-a-number", "infinite", "huge", "shape", "broadcast", "missing", "extra", "late", "weight", "slow", "error"
]


@dataclass(frozen=True)
class FaultSettings:
    """Faults to play; none by default."""

    dropout: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the drawn clients that do not answer, others in every round."""
    answer: Answer | None = None
    """How one node answers in every round of training."""
    host_of: Annotated[int, Meta(ge=0)] = 0
    """That node: the one which hosts this user number."""
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    """How long a slow answer takes."""


def present(ids: Ids, round: int, faults: FaultSettings) -> Bool[Tensor, " C"]:
    """Which of these clients answer this round."""
    drawn = Draws(0).uniform("faults/dropout", round, ids.numpy(), np.zeros(1, dtype=np.int64))
    return torch.from_numpy(drawn >= faults.dropout)


def damaged(letter: Letter, users: Ids, faults: FaultSettings) -> Letter:
    """What a node sends instead of its honest answer."""
    if faults.answer is None or not (users == faults.host_of).any():
        return letter
    sent = [name for name, value in letter.tensors.items() if value.is_floating_point()]
    if not sent:
        return letter
    name, value = sent[0], letter.tensors[sent[0]].clone()
    about, changed = letter.about, dict(letter.tensors)
    match faults.answer:
        case "not-a-number" | "infinite":
            value.view(-1)[0] = torch.nan if faults.answer == "not-a-number" else torch.inf
            changed[name] = value
        case "huge":
            changed[name] = value + 1e30
        case "shape":
            changed[name] = value[:-1]
        case "broadcast":
            changed[name] = value[:1]
        case "missing":
            del changed[name]
        case "extra":
            changed["sum/more"] = value
        case "late":
            about = {**about, "round": about["round"] - 1}
        case "weight":
            changed["weight"] = torch.full((len(changed["ids"]),), -89.0)
        case "slow":
            time.sleep(faults.seconds)
        case "error":
            raise RunError("This node fails on purpose: faults.answer = 'error'.")
    return replace(letter, about=about, tensors=changed)
