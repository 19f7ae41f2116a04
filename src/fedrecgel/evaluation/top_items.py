"""The best items of many users at once, in an order that does not depend on who is beside whom."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

WIDTH = 128
"""Neighbouring items of which only the best is looked at first."""


class Top(NamedTuple):
    """Entries of a matrix of scores, row after row, best first."""

    rows: Int[Tensor, " r"]
    ranks: Int[Tensor, " r"]
    """From 0, within a row."""
    columns: Int[Tensor, " r"]
    values: Float[Tensor, " r"]


def top(
    scores: Float[Tensor, "C n"],
    taken: tuple[Int[Tensor, " o"], Int[Tensor, " o"]],
    allowed: Bool[Tensor, " n"] | None,
    k: int,
) -> Top:
    """Each row's k best but for what is taken or not allowed; equal scores in the order of columns.

    Args:
        scores: what is not a number comes last.
        taken: rows and columns that do not count.
        allowed: columns that count, for all rows.
        k: how many; rows with fewer give all they have.
    """
    found = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    if allowed is not None:
        found.masked_fill_(~allowed, -torch.inf)
    found[taken] = -torch.inf
    if found.shape[1] >= k * WIDTH:
        rows, columns, values, enough = _candidates(found, k)
        if enough:
            return _first(rows, columns, values, k)
    blocked = torch.zeros_like(found, dtype=torch.bool)
    if allowed is not None:
        blocked |= ~allowed
    blocked[taken] = True
    least = torch.topk(found, k, dim=1).values[:, -1:]
    rows, columns = torch.nonzero((found >= least) & ~blocked, as_tuple=True)
    return _first(rows, columns, found[rows, columns], k)


def _candidates(
    scores: Float[Tensor, "C n"], k: int
) -> tuple[Int[Tensor, " c"], Int[Tensor, " c"], Float[Tensor, " c"], bool]:
    """Entries among which each row's k best are, and whether these are k real ones.

    The k-th best of the maxima of neighbours is a bound that at least k entries reach; only runs of neighbours that do
    are read again.
    """
    n = scores.shape[1]
    whole = n // WIDTH * WIDTH
    best = scores[:, :whole].reshape(len(scores), -1, WIDTH).amax(2)
    if whole < n:
        best = torch.cat([best, scores[:, whole:].amax(1, keepdim=True)], 1)
    bound = torch.topk(best, k, dim=1).values[:, -1:]
    row, block = torch.nonzero(best >= bound, as_tuple=True)
    columns = block[:, None] * WIDTH + torch.arange(WIDTH, device=block.device)
    inside = columns < n
    values = scores[row[:, None], columns.clamp(max=n - 1)]
    good = (values >= bound[row]) & inside
    rows = row[:, None].expand_as(columns)[good]
    return rows, columns[good], values[good], bool((bound > -torch.inf).all())


def _first(rows: Int[Tensor, " c"], columns: Int[Tensor, " c"], values: Float[Tensor, " c"], k: int) -> Top:
    """The k best of each row, from entries in the order of rows and columns."""
    order = values.argsort(descending=True, stable=True)
    order = order[rows[order].argsort(stable=True)]
    rows = rows[order]
    ranks = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
    best = ranks < k
    return Top(rows[best], ranks[best], columns[order][best], values[order][best])
