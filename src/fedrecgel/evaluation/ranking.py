"""The rank of the held-out item among others, and what ties mean.

Ties count by expectation over random order: an item that ties with t others below a better ones is equally likely on
each of the ranks a + 1 … a + t + 1. So a constant scorer gets HR@10 = 0.10 among 100 candidates, and popularity, with
its many equal counts, is treated fairly. The position in a list never matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

TieRule = Literal["expected", "pessimistic"]


@dataclass(frozen=True)
class Ranks:
    """For each client: how many items score above the held-out one, and how many the same."""

    above: Int[Tensor, " C"]
    tied: Int[Tensor, " C"]


def rank_against(target: Float[Tensor, " C"], others: Float[Tensor, "C M"]) -> Ranks:
    """Count. A score that is not a number ranks above: a model that diverged must not look perfect."""
    above = ~(others <= target[:, None])
    return Ranks(above.sum(1), (others == target[:, None]).sum(1))
