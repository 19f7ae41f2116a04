"""Metrics of held-out items' ranks. A new one is one function and one line in METRICS.

A metric says what a client gains if its held-out item has rank 1, 2, …, as a fraction. Ties are counted here, the same
for all: the gain of a client is the mean over the ranks that its ties leave equally likely. Of several held-out items
`Metric.several` makes one number; see `evaluation/several.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedrecgel.evaluation.ranking import Ranks, TieRule
from fedrecgel.evaluation.several import Levels, levels_of, of_all, of_first, of_ideal, of_precision, running_sum


@dataclass(frozen=True)
class Metric:
    """What a rank is worth."""

    gain: Callable[..., Tensor]
    """Of ranks [r] in float64 and, if its name ends in @K, of the cut-off K: for each rank a value between 0 and 1."""
    in_tables: bool = True
    """Whether tables and curves of experiments show it; run folders have every metric."""
    several: Callable[[Levels, Tensor], Tensor] = of_first
    """What several held-out items of a client gain together; by default what the first of them does."""
    alone: bool = True
    """Whether it says something of a single held-out item that no other metric does."""


def hit(rank: Float[Tensor, " r"], k: int) -> Bool[Tensor, " r"]:
    """HR@K: 1 if the item is among the first K."""
    return rank <= k


def discounted_gain(rank: Float[Tensor, " r"], k: int) -> Float[Tensor, " r"]:
    """NDCG@K with one relevant item: 1 / log2(rank + 1) among the first K."""
    return torch.where(rank <= k, 1 / torch.log2(rank + 1), 0)


def reciprocal_rank(rank: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
    """MRR: 1 / rank."""
    return 1 / rank


def precision_share(rank: Float[Tensor, " r"], k: int) -> Float[Tensor, " r"]:
    """MAP@K with one relevant item: 1 / rank among the first K."""
    return torch.where(rank <= k, 1 / rank, 0)


METRICS: dict[str, Metric] = {
    "HR@K": Metric(hit),
    "NDCG@K": Metric(discounted_gain, several=of_ideal),
    "Recall@K": Metric(hit, in_tables=False, several=of_all, alone=False),
    "MAP@K": Metric(precision_share, in_tables=False, several=of_precision, alone=False),
    "MRR": Metric(reciprocal_rank, in_tables=False),
}
"""By name; a name that ends in @K stands for one metric per cut-off."""


def metric_names(ks: Sequence[int], *, in_tables: bool = False) -> list[str]:
    """The metrics of one held-out item with these cut-offs, in the order of files; or only those that tables show."""
    shown = {name: own for name, own in METRICS.items() if own.alone and (own.in_tables or not in_tables)}
    return list(_expand(shown, ks))


def is_metric(name: str) -> bool:
    """Whether a number in a line of metrics.jsonl has the name of a metric."""
    stem, at, k = name.rpartition("@")
    return (f"{stem}@K" if at and k.isdigit() else name) in METRICS


def metrics(ranks: Ranks, ks: Sequence[int] = (5, 10), ties: TieRule = "expected") -> dict[str, float]:
    """The mean of every metric over clients, as a fraction."""
    per_client = client_metrics(ranks, ks, ties)
    return {name: float(values.mean()) for name, values in per_client.items()}


def client_metrics(
    ranks: Ranks, ks: Sequence[int] = (5, 10), ties: TieRule = "expected"
) -> dict[str, Float[Tensor, " C"]]:
    """Every metric of each client, in float64."""
    if ranks.ptr is not None:
        return _several_metrics(levels_of(ranks, ties), ks)
    first = ranks.above  # ranks first + 1 … last are equally likely
    last = ranks.above + ranks.tied + 1
    if ties == "pessimistic":
        first = last - 1
    positions = torch.arange(1, int(last.max()) + 1, dtype=torch.float64, device=first.device)
    spread = (last - first).double()
    found = {}
    alone = {name: metric for name, metric in METRICS.items() if metric.alone}
    for name, (metric, cut) in _expand(alone, ks).items():
        total = running_sum(metric.gain(positions, *cut).double())
        found[name] = (total[last] - total[first]) / spread
    return found


def _several_metrics(levels: Levels, ks: Sequence[int]) -> dict[str, Float[Tensor, " C"]]:
    positions = torch.arange(1, levels.last + 1, dtype=torch.float64)
    every = _expand(METRICS, ks).items()
    return {name: metric.several(levels, metric.gain(positions, *cut).double()) for name, (metric, cut) in every}


def _expand(metrics: Mapping[str, Metric], ks: Sequence[int]) -> dict[str, tuple[Metric, tuple[int, ...]]]:
    """Every metric with every cut-off it takes, by its name in files."""
    cut = {name.removesuffix("@K"): own for name, own in metrics.items() if name.endswith("@K")}
    found: dict[str, tuple[Metric, tuple[int, ...]]] = {
        f"{stem}@{k}": (own, (k,)) for k in sorted(ks) for stem, own in cut.items()
    }
    return found | {name: (own, ()) for name, own in metrics.items() if not name.endswith("@K")}
