"""Item tables of many clients, [C, n, d] without building it, and the private state they are part of.

Back ends: one tensor for all (an ordinary shared table), one of a few tables each (`StackedTable`), a common base with
the rows a client changed (`PersonalTable`), and a plain dense tensor [C, n, d] where a method moves every row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.tensors import Tensors, copy, move, n_bytes

NO_TABLE = -1
STACKS = "stacks"
"""Key prefix of stacks in checkpoint files."""

Index = Int[Tensor, " i"] | slice
"""Some of the clients of a batch."""


@runtime_checkable
class ItemTable(Protocol):
    """C clients' views of the catalogue."""

    def __getitem__(self, index: Index) -> ItemTable:
        """The views of some of the clients."""

    def rows(self, at: Int[Tensor, "C K"]) -> Float[Tensor, "C K d"]:
        """Rows of each client's table."""

    def dense(self) -> Float[Tensor, "C n d"]:
        """The tables themselves, for losses over the whole catalogue."""

    @property
    def n_bytes(self) -> int:
        """What the tables weigh on the wire."""


@dataclass(frozen=True, eq=False)
class StackedTable:
    """Every client has one table of a stack; nothing is gathered before it is read."""

    stack: Float[Tensor, "g n d"]
    which: Int[Tensor, " C"]
    """Each client's table; NO_TABLE for a client without one, whose rows mean nothing."""
    held: bool = False
    """Whether clients still have their table from an earlier download: a simulator keeps it once for all of them."""

    def __getitem__(self, index: Index) -> StackedTable:
        """Some of the clients, over the same stack."""
        return replace(self, which=self.which[index])

    def rows(self, at: Int[Tensor, "C K"]) -> Float[Tensor, "C K d"]:
        """Rows of each client's table."""
        return self.stack[self.which.clamp(min=0)[:, None], at]

    def dense(self) -> Float[Tensor, "C n d"]:
        """A copy of each client's table."""
        return self.stack[self.which.clamp(min=0)]

    @property
    def n_bytes(self) -> int:
        """One table for each client that has one and does not hold it already."""
        sent = 0 if self.held else int((self.which != NO_TABLE).sum())
        return sent * self.stack[:1].numel() * self.stack.element_size()


@dataclass(frozen=True, eq=False)
class PersonalTable:
    """A common base and the rows each client changed: table_c = scale_c · (base_c, with the own rows put in).

    The scale carries weight decay of the whole table, so that a row nobody touched costs nothing.
    """

    bases: tuple[Float[Tensor, "n d"], ...]
    which: Int[Tensor, " C"]
    """The base of each client."""
    scale: Float[Tensor, " C"]
    ptr: Int[Tensor, " p"]
    """Client c changed rows at[ptr[c]:ptr[c + 1]], in ascending order."""
    at: Int[Tensor, " r"]
    values: Float[Tensor, "r d"]

    @classmethod
    def common(cls, base: Float[Tensor, "n d"], n_clients: int) -> PersonalTable:
        """Clients that changed nothing yet."""
        which, ptr, at = (torch.zeros(n, dtype=torch.int64, device=base.device) for n in (n_clients, n_clients + 1, 0))
        return cls((base,), which, base.new_ones(n_clients), ptr, at, base[:0].clone())

    @classmethod
    def cat(cls, tables: Sequence[PersonalTable]) -> PersonalTable:
        """Clients of several tables, one after another; a base they share stays shared."""
        bases = {id(base): base for table in tables for base in table.bases}
        number = {key: position for position, key in enumerate(bases)}
        which = [torch.tensor([number[id(base)] for base in table.bases])[table.which.cpu()] for table in tables]
        sizes = torch.cat([table.ptr.diff() for table in tables])
        return cls(
            tuple(bases.values()),
            torch.cat(which).to(sizes.device),
            torch.cat([table.scale for table in tables]),
            torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]),
            torch.cat([table.at for table in tables]),
            torch.cat([table.values for table in tables]),
        )

    def singles(self) -> list[PersonalTable]:
        """One table per client, each in memory of its own."""
        sizes = self.ptr.diff().tolist()
        parts = zip(torch.split(self.at, sizes), torch.split(self.values, sizes), self.which.tolist(), strict=True)
        first = self.ptr.new_zeros(1)
        return [
            PersonalTable(
                (self.bases[base],),
                first,
                self.scale[c : c + 1].clone(),
                self.ptr.new_tensor([0, len(at)]),
                at.clone(),
                values.clone(),
            )
            for c, (at, values, base) in enumerate(parts)
        ]

    def __getitem__(self, index: Index) -> PersonalTable:
        """Some of the clients, over the same bases."""
        chosen = torch.arange(len(self.which), device=self.which.device)[index]
        sizes = self.ptr.diff()[chosen]
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        inside = torch.arange(int(ptr[-1]), device=ptr.device) - ptr[:-1].repeat_interleave(sizes)
        at = self.ptr[chosen].repeat_interleave(sizes) + inside
        return PersonalTable(self.bases, self.which[chosen], self.scale[chosen], ptr, self.at[at], self.values[at])

    @property
    def owners(self) -> Int[Tensor, " r"]:
        """The client of each changed row."""
        return torch.arange(len(self.which), device=self.ptr.device).repeat_interleave(self.ptr.diff())

    @property
    def _keys(self) -> Int[Tensor, " r"]:
        """Changed rows as one ascending sequence."""
        return self.owners * len(self.bases[0]) + self.at

    def rows(self, at: Int[Tensor, "C K"]) -> Float[Tensor, "C K d"]:
        """Own rows where there are any, else those of the base; scaled."""
        if len(self.bases) == 1:
            found = self.bases[0][at]
        else:
            found = self.bases[0].new_empty(*at.shape, self.bases[0].shape[1])
            for base in sorted(set(self.which.tolist())):
                here = self.which == base
                found[here] = self.bases[base][at[here]]
        if len(self.at):
            wanted = torch.arange(len(at), device=at.device)[:, None] * len(self.bases[0]) + at
            keys = self._keys
            nearest = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
            own = keys[nearest] == wanted
            found[own] = self.values[nearest[own]]
        return found * self.scale[:, None, None]

    def dense(self) -> Float[Tensor, "C n d"]:
        """The whole tables."""
        found = torch.stack([self.bases[base] for base in self.which.tolist()])
        found[self.owners, self.at] = self.values
        return found * self.scale[:, None, None]

    def with_rows(
        self,
        at: Int[Tensor, "C K"],
        mask: Bool[Tensor, "C K"],
        values: Float[Tensor, "C K d"],
        decay: Float[Tensor, " C"] | None = None,
    ) -> PersonalTable:
        """New tables over the same bases: these rows get these values, all others are multiplied by `decay`."""
        scale = self.scale if decay is None else self.scale * decay
        owner = torch.arange(len(at), device=at.device)[:, None].expand_as(at)[mask]
        new, old = owner * len(self.bases[0]) + at[mask], self._keys
        stays = ~torch.isin(old, new)
        keys, order = torch.cat([old[stays], new]).sort()
        merged = torch.cat([self.values[stays], values[mask] / scale[owner, None]])[order]
        owners = torch.arange(len(at) + 1, device=at.device) * len(self.bases[0])
        return PersonalTable(
            self.bases, self.which, scale, torch.searchsorted(keys, owners), keys % len(self.bases[0]), merged
        )

    @property
    def n_bytes(self) -> int:
        """The tables as a device holds them: dense."""
        return len(self.which) * n_bytes({"base": self.bases[0]})

    def pack(self) -> Tensors:
        """As named tensors, for a file."""
        return {
            "bases": torch.stack(self.bases),
            "which": self.which,
            "scale": self.scale,
            "ptr": self.ptr,
            "at": self.at,
            "values": self.values,
        }

    @classmethod
    def unpack(cls, parts: Tensors) -> PersonalTable:
        """What `pack` returned."""
        return cls(tuple(parts["bases"]), *(parts[name] for name in ("which", "scale", "ptr", "at", "values")))


@dataclass(frozen=True)
class State:
    """What C clients keep to themselves."""

    tensors: Tensors = field(default_factory=dict)
    """[C, ...] each."""
    tables: Mapping[str, PersonalTable] = field(default_factory=dict)
    stacks: Tensors = field(default_factory=dict)
    """[g, ...] each: tensors that many of the clients have in common, kept once."""
    which: Int[Tensor, " C"] | None = None
    """Each client's place in the stacks."""

    def __getitem__(self, name: str) -> Tensor:
        """A tensor by name."""
        return self.stacks[name][self.which] if name in self.stacks else self.tensors[name]

    def rows(self, name: str, at: Int[Tensor, "C K"]) -> Float[Tensor, "C K d"]:
        """Rows of each client's table [n, d]; the rest of it is not touched."""
        if name in self.stacks and self.which is not None:
            return self.stacks[name][self.which[:, None], at]
        return self.tensors[name][torch.arange(len(at), device=at.device)[:, None], at]

    def of(self, index: Index) -> State:
        """The state of some of the clients, with tensors of their own."""
        tensors = {name: value[index] for name, value in self.tensors.items()}
        if self.which is not None:
            tensors |= {name: stack[self.which[index]] for name, stack in self.stacks.items()}
        return State(tensors, {name: table[index] for name, table in self.tables.items()})

    def copy(self) -> State:
        """A copy in memory of its own, except for tables, which nobody writes to."""
        which = None if self.which is None else self.which.clone()
        return State(copy(self.tensors), self.tables, copy(self.stacks), which)

    def to(self, device: torch.device) -> State:
        """The same state on a device."""
        return State.unpack(move(self.pack(), device))

    def pack(self) -> Tensors:
        """As named tensors, for a file."""
        tables = {
            f"{name}:{part}": value for name, table in self.tables.items() for part, value in table.pack().items()
        }
        if self.which is None:
            return {**self.tensors, **tables}
        stacks = {f"{STACKS}:{name}": value for name, value in self.stacks.items()}
        return {**self.tensors, **tables, **stacks, f"{STACKS}:": self.which}

    @classmethod
    def start(cls, n_clients: int, common: Tensors, tables: Mapping[str, PersonalTable] | None = None) -> State:
        """Clients that start with the same tensors, which have no client axis and are kept once."""
        device = next(iter(common.values())).device
        which = torch.zeros(n_clients, dtype=torch.int64, device=device)
        return cls({}, tables or {}, {name: value[None] for name, value in common.items()}, which)

    @classmethod
    def unpack(cls, values: Tensors) -> State:
        """What `pack` returned."""
        parts: dict[str, Tensors] = {}
        for key in values:
            name, colon, part = key.partition(":")
            if colon:
                parts.setdefault(name, {})[part] = values[key]
        tensors = {name: value for name, value in values.items() if ":" not in name}
        stacks = parts.pop(STACKS, {})
        which = stacks.pop("", None)
        return cls(tensors, {name: PersonalTable.unpack(found) for name, found in parts.items()}, stacks, which)
