"""Who touched which item how often: sparse counts, and products with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.data.history import History

BLOCK = 512
"""Columns of a square matrix computed together: small beside the matrix, large enough to batch."""


@dataclass(frozen=True, eq=False)
class CountMatrix:
    """A sparse matrix of counts: row u holds counts[ptr[u]:ptr[u + 1]] in columns at[…], which ascend."""

    ptr: Int[Tensor, " p"]
    at: Int[Tensor, " r"]
    counts: Float[Tensor, " r"]
    n_columns: int

    @classmethod
    def from_entries(
        cls,
        rows: Int[Tensor, " r"],
        columns: Int[Tensor, " r"],
        counts: Float[Tensor, " r"],
        shape: tuple[int, int],
    ) -> CountMatrix:
        """Entries in any order, each place once."""
        n_rows, n_columns = shape
        keys, order = (rows * n_columns + columns).sort()
        starts = torch.arange(n_rows + 1, device=rows.device) * n_columns
        return cls(torch.searchsorted(keys, starts), keys % n_columns, counts[order], n_columns)

    @classmethod
    def from_uploads(cls, uploads: Iterable[tuple[Tensor, Tensor, Tensor]], n_items: int) -> CountMatrix:
        """One row per client, by ascending id, in whatever order they sent; in double precision.

        Args:
            uploads: ids [C], items [C, K] and their counts [C, K, 1], zero for an item not touched; C and K vary.
            n_items: size of the catalogue.
        """
        users, items, counts = [], [], []
        for ids, at, sent in uploads:
            met = sent[:, :, 0] > 0
            users.append(ids.to(at.device)[:, None].expand_as(at)[met])
            items.append(at[met])
            counts.append(sent[met][:, 0].double())
        sender = torch.cat(users)
        who = sender.bincount().nonzero()[:, 0]
        rows = torch.searchsorted(who, sender)
        return cls.from_entries(rows, torch.cat(items), torch.cat(counts), (len(who), n_items))

    @classmethod
    def from_history(cls, history: History, dtype: torch.dtype) -> CountMatrix:
        """What some devices know of themselves, one row each."""
        return cls(history.ptr, history.items, history.counts.to(dtype), history.n_items)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.ptr) - 1

    @property
    def owners(self) -> Int[Tensor, " r"]:
        """The row of each entry."""
        return torch.arange(self.n_rows, device=self.ptr.device).repeat_interleave(self.ptr.diff())

    def binary(self) -> CountMatrix:
        """Every count is one."""
        return replace(self, counts=torch.ones_like(self.counts))

    def transpose(self) -> CountMatrix:
        """Rows and columns exchanged."""
        return self.from_entries(self.at, self.owners, self.counts, (self.n_columns, self.n_rows))

    def part(self, first: int, last: int) -> CountMatrix:
        """Rows first … last - 1."""
        inside = slice(int(self.ptr[first]), int(self.ptr[last]))
        ptr = self.ptr[first : last + 1] - self.ptr[first]
        return replace(self, ptr=ptr, at=self.at[inside], counts=self.counts[inside])

    def sparse(self) -> Tensor:
        """As a sparse tensor [m, n]."""
        places, shape = torch.stack([self.owners, self.at]), (self.n_rows, self.n_columns)
        return torch.sparse_coo_tensor(places, self.counts, shape, is_coalesced=True, check_invariants=False)


def blocks_of(n: int) -> Iterator[tuple[int, int]]:
    """Ranges that cover 0 … n - 1."""
    for first in range(0, n, BLOCK):
        yield first, min(first + BLOCK, n)


def gram_columns(matrix: CountMatrix) -> Iterator[tuple[int, int, Float[Tensor, "n b"]]]:
    """Columns first … last - 1 of XᵀX, a block at a time."""
    columns = matrix.transpose()
    whole = columns.sparse()
    for first, last in blocks_of(matrix.n_columns):
        yield first, last, torch.sparse.mm(whole, columns.part(first, last).sparse().to_dense().mT)
