"""What servers and clients hand each other in a round, and what a method knows of its problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from threading import RLock
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.tables import Index, ItemTable, State
from fedrecgel.tensors import Factors, Ids, Summed, Tensors, n_bytes

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """What a method may know before training: sizes, and where numbers live."""

    n_clients: int
    n_items: int
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def tensor(self, values: Any) -> Tensor:
        """An array as a tensor of this problem."""
        return torch.as_tensor(values).to(self.device, self.dtype)


@dataclass(frozen=True)
class Server:
    """The server's state."""

    shared: Tensors
    """What clients download, all of it or their part; enough to score with."""
    kept: Tensors = field(default_factory=dict)
    """What only training needs: optimiser moments, tables of uploads."""


@dataclass(frozen=True)
class Download:
    """What clients receive."""

    shared: Tensors
    """The same for all: no client axis."""
    each: Tensors = field(default_factory=dict)
    """One slice per client."""
    tables: Mapping[str, ItemTable] = field(default_factory=dict)
    """One item table per client, gathered where it is read."""
    _derived: dict[Any, Any] = field(init=False, default_factory=dict, repr=False, compare=False)
    _lock: RLock = field(init=False, default_factory=RLock, repr=False, compare=False)

    def of(self, index: Index) -> Download:
        """What some of the clients received."""
        each = {name: value[index] for name, value in self.each.items()}
        part = Download(self.shared, each, {name: table[index] for name, table in self.tables.items()})
        for name in ("_derived", "_lock"):  # of the same shared part
            object.__setattr__(part, name, getattr(self, name))
        return part

    def derive(self, compute: Callable[[Tensors], T]) -> T:
        """What a device computes from the shared part before it trains or scores; once for each download."""
        key = (getattr(compute, "__func__", compute), getattr(compute, "__self__", None))  # models compare by value
        with self._lock:
            if key not in self._derived:
                self._derived[key] = compute(self.shared)
            found: T = self._derived[key]
            return found

    @property
    def own_bytes(self) -> int:
        """What all clients' own parts weigh together."""
        return n_bytes(self.each) + sum(table.n_bytes for table in self.tables.values())


class Minima(NamedTuple):
    """How many clients a sum must cover."""

    cohort: int
    """See `Method.smallest_cohort`."""
    sum: int
    """See `Method.smallest_sum`."""
    drawn: bool = True
    """Whether a client that samples negatives sends something else every time: sums that share clients cannot be
    subtracted from each other."""


@dataclass(frozen=True)
class Upload:
    """What clients send: `dense` tensors and `rows` of tables over the catalogue."""

    ids: Ids
    dense: Mapping[str, Tensor | Factors | Summed]
    """[C, ...] each; a simulator may have summed them already."""
    rows: Tensors
    """[C, K, d]; a row not sent is zero."""
    at: Int[Tensor, "C K"]
    """Which rows. A simulator's economy: on the wire tables are sent whole. That hides nothing from a server that sees
    every upload, as `plain` lets it: rows that are not zero were touched."""
    weight: Float[Tensor, " C"]

    def n_bytes(self, n_items: int) -> int:
        """What one client sends on a real wire, where tables over the catalogue travel whole."""
        one = {name: _of_one(value) for name, value in self.dense.items()}
        return n_bytes(one) + sum(n_items * v.shape[2] * v.element_size() for v in self.rows.values())


def _of_one(value: Tensor | Factors | Summed) -> Tensor:
    """As large as what one client sends."""
    if isinstance(value, Summed):
        return value.value
    return value.left.new_empty(value.left.shape[2], value.right.shape[2]) if isinstance(value, Factors) else value[:1]


class ClientResult(NamedTuple):
    """What training leaves behind on C devices, and what leaves them."""

    private: State
    upload: Upload
    loss: Float[Tensor, " C"] | None = None
    """None for a method that minimises none."""


class Need(IntEnum):
    """What a server must see of the uploads; a channel that reveals less is refused."""

    LINEAR = 0
    """Sums and scalings, which may stay encrypted."""
    SUM = 1
    """The plain sum."""
    EACH = 2
    """Every upload."""


@runtime_checkable
class Inbox(Protocol):
    """All a server ever sees of one round."""

    @property
    def weight(self) -> float:
        """What all clients weigh together: how many they are, where each weighs 1. The server counts, not they."""

    def total(self) -> Tensors:
        """Weighted sum over clients; tables over the catalogue are dense."""

    def mean(self) -> Tensors:
        """The sum divided by the sum of weights."""

    def each(self) -> list[Upload]:
        """Every upload; raises PrivacyError when only sums are revealed."""
