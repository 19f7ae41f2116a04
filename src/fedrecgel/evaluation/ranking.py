"""The ranks of held-out items among others, and what ties mean.

Ties count by expectation over random order: an item that ties with t others below a better ones is equally likely on
each of the ranks a + 1 … a + t + 1. So a constant scorer gets HR@10 = 0.10 among 100 candidates, and popularity, with
its many equal counts, is treated fairly. The position in a list never matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TieRule = Literal["expected", "pessimistic"]


@dataclass(frozen=True)
class Ranks:
    """For each held-out item: how many items score above it, and how many others the same.

    Where a client has several, each counts among the others.
    """

    above: Int[Tensor, " h"]
    tied: Int[Tensor, " h"]
    ptr: Int[Tensor, " p"] | None = None
    """Client c has entries ptr[c] … ptr[c + 1] - 1; None: entry c."""


def rank_against(target: Float[Tensor, " C"], others: Float[Tensor, "C M"]) -> Ranks:
    """Count. A score that is not a number ranks above: a model that diverged must not look perfect."""
    above = ~(others <= target[:, None])
    return Ranks(above.sum(1), (others == target[:, None]).sum(1))


def rank_several(
    targets: Float[Tensor, "C T"],
    valid: Bool[Tensor, "C T"],
    others: Float[Tensor, "C M"],
    left_out: Bool[Tensor, "C M"] | None = None,
) -> Ranks:
    """Count for several held-out items of each client, which are ranked among each other, too.

    Args:
        targets: scores of held-out items.
        valid: which of them are real.
        others: scores of other items; those left out are -inf.
        left_out: others that do not count.

    Returns:
        One entry for each real target, client after client. A score that is not a number ranks above, a held-out item's
        below.
    """
    n_out = left_out.sum(1, keepdim=True) if left_out is not None else torch.zeros_like(valid[:, :1], dtype=torch.int64)
    unknown, missing = others.isnan().sum(1, keepdim=True), targets.isnan()
    ordered = others.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).sort(1).values
    wanted = targets.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).contiguous()
    up_to = torch.searchsorted(ordered, wanted, right=True)
    tied = up_to - torch.searchsorted(ordered, wanted) - torch.where(wanted == -torch.inf, n_out, 0)
    above = others.shape[1] - up_to
    first = wanted == torch.inf  # what is not a number was put there, too
    above, tied = above + torch.where(first, unknown, 0), tied - torch.where(first, unknown, 0)
    above = torch.where(missing, others.shape[1] - n_out, above)
    tied = torch.where(missing, 0, tied)
    mine, theirs = targets[:, :, None], targets[:, None, :]
    both = valid[:, None, :] & ~torch.eye(targets.shape[1], dtype=torch.bool)
    higher = ((theirs > mine) | (missing[:, :, None] & ~missing[:, None, :])) & both
    equal = ((theirs == mine) | (missing[:, :, None] & missing[:, None, :])) & both
    above, tied = above + higher.sum(2), tied + equal.sum(2)
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), valid.sum(1).cumsum(0)])
    return Ranks(above[valid], tied[valid], ptr)
