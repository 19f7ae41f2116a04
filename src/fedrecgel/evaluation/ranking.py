"""The rank of the held-out item, and HR@K, NDCG@K and MRR.

Ties count by expectation over random order: an item that ties with t others below a better ones is equally likely on
each of the ranks a + 1 … a + t + 1. So a constant scorer gets HR@10 = 0.10 among 100 candidates, and popularity, with
its many equal counts, is treated fairly. The position in a list never matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
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


def metrics(ranks: Ranks, ks: Sequence[int] = (5, 10), ties: TieRule = "expected") -> dict[str, float]:
    """Mean over clients of HR@K, NDCG@K and MRR, as fractions.

    With one relevant item, NDCG@K of one client is 1 / log2(rank + 1) if rank ≤ K, else 0; MRR is 1 / rank.
    """
    per_client = client_metrics(ranks, ks, ties)
    return {name: float(values.mean()) for name, values in per_client.items()}


def client_metrics(
    ranks: Ranks, ks: Sequence[int] = (5, 10), ties: TieRule = "expected"
) -> dict[str, Float[Tensor, " C"]]:
    """The same for each client, in float64."""
    first = ranks.above  # ranks first + 1 … last are equally likely
    last = ranks.above + ranks.tied + 1
    if ties == "pessimistic":
        first = last - 1
    positions = torch.arange(1, int(last.max()) + 1, dtype=torch.float64, device=first.device)
    discounts, inverses = _running_sum(1 / torch.log2(positions + 1)), _running_sum(1 / positions)
    spread = (last - first).double()
    out: dict[str, Tensor] = {}
    for k in sorted(ks):
        low, high = first.clamp(max=k), last.clamp(max=k)
        out[f"HR@{k}"] = (high - low) / spread
        out[f"NDCG@{k}"] = (discounts[high] - discounts[low]) / spread
    out["MRR"] = (inverses[last] - inverses[first]) / spread
    return out


def _running_sum(values: Float[Tensor, " r"]) -> Float[Tensor, " s"]:
    """Entry i is the sum of the first i values."""
    return torch.cat([values.new_zeros(1), values.cumsum(0)])
