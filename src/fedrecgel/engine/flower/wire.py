"""What travels between the server and a node, whatever carries it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from fedrecgel.methods.messages import Download
from fedrecgel.tables import StackedTable
from fedrecgel.tensors import Tensors, n_bytes

ANSWER_BYTES = 1 << 20
"""Of an answer without arrays of its own: some facts, headers, an error in words."""
LONGEST_REASON = 300


@dataclass(frozen=True)
class Letter:
    """Small facts as JSON, and named tensors."""

    about: dict[str, Any]
    tensors: Tensors = field(default_factory=dict)
    answer_bytes: int = ANSWER_BYTES
    """The longest answer to it that is read; does not travel."""

    @property
    def n_bytes(self) -> int:
        """What it weighs, without the carrier's own headers."""
        return len(json.dumps(self.about)) + n_bytes(self.tensors)


@dataclass(frozen=True)
class Lost:
    """A letter that found no answer, and why."""

    reason: str


@runtime_checkable
class Courier(Protocol):
    """Carries letters to nodes and back."""

    def nodes(self) -> dict[int, str]:
        """Nodes that can be reached now, each with its key: what it cannot choose and keeps when it comes back."""

    def exchange(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        """Send a letter to each of these nodes and hand over answers as they arrive, for so many seconds at most."""


def shortened(said: object) -> str:
    """What a node says, as far as it is worth repeating."""
    text = said if isinstance(said, str) else "something that is no text"
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def prefixed(prefix: str, tensors: Tensors) -> Tensors:
    """Names that tell apart several groups of tensors in one letter."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def group(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors of one group, under their own names."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def pack_download(down: Download, index: Int[Tensor, " i"]) -> Tensors:
    """What some of the clients receive, as named tensors; of tables only those that these clients get."""
    tensors = prefixed("shared", down.shared)
    tensors |= prefixed("own", {name: value[index] for name, value in down.each.items()})
    for name, table in down.tables.items():
        mine = table[index]
        if isinstance(mine, StackedTable):
            used, which = torch.unique(mine.which, return_inverse=True)
            stack = mine.stack[used]
        else:
            stack, which = mine.dense(), torch.arange(len(index))
        tensors |= {f"stack/{name}": stack, f"which/{name}": which}
    return tensors


def unpack_download(tensors: Tensors) -> Download:
    """What `pack_download` packed."""
    stacks, which = group("stack", tensors), group("which", tensors)
    tables = {name: StackedTable(stack, which[name]) for name, stack in stacks.items()}
    return Download(group("shared", tensors), group("own", tensors), tables)
