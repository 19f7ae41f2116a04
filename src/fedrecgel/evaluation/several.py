"""What several held-out items of one client are worth together, in expectation over the order of equal scores.

A *level* is a client's held-out items of one score. Of the n items with that score, held out or not, r are held out; a
items score above, `before` of them held out. Every order of the n is equally likely, so each of the ranks a + 1 … a + n
is that of a held-out item with probability r / n. All values are exact; nothing is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.evaluation.ranking import Ranks, TieRule


@dataclass(frozen=True)
class Levels:
    """The levels of all clients, one after another, best first."""

    client: Int[Tensor, " l"]
    above: Int[Tensor, " l"]
    size: Int[Tensor, " l"]
    """n: items with this score."""
    held_out: Int[Tensor, " l"]
    """r: those of them that are held out."""
    before: Int[Tensor, " l"]
    """Held-out items of the client with a higher score."""
    n_items: Int[Tensor, " C"]
    """Held-out items of each client."""

    @property
    def last(self) -> int:
        """The lowest rank that matters."""
        return int(torch.maximum((self.above + self.size).max(), self.n_items.max()))

    def per_client(self, values: Float[Tensor, " l"]) -> Float[Tensor, " C"]:
        """Sums over the levels of each client."""
        return torch.zeros(len(self.n_items), dtype=torch.float64).index_add_(0, self.client, values)

    def between(self, values: Float[Tensor, " p"]) -> Float[Tensor, " l"]:
        """The sum of values[rank - 1] over the ranks of each level."""
        total = running_sum(values)
        return total[self.above + self.size] - total[self.above]


def levels_of(ranks: Ranks, ties: TieRule) -> Levels:
    """Gather the held-out items of one score; the pessimistic rule puts them below all others of that score."""
    ptr = ranks.ptr if ranks.ptr is not None else torch.arange(len(ranks.above) + 1)
    n_items = ptr.diff()
    owner = torch.arange(len(n_items)).repeat_interleave(n_items)
    key = owner * (int(ranks.above.max()) + 1) + ranks.above
    key, order = key.sort(stable=True)
    _, held_out = torch.unique_consecutive(key, return_counts=True)
    first = torch.cat([held_out.new_zeros(1), held_out.cumsum(0)])[:-1]
    at = order[first]
    client, above, size = owner[at], ranks.above[at], ranks.tied[at] + 1
    if ties == "pessimistic":
        above, size = above + size - held_out, held_out
    return Levels(client, above, size, held_out, first - ptr[client], n_items)


def of_first(levels: Levels, gains: Float[Tensor, " p"]) -> Float[Tensor, " C"]:
    """The gain of the first held-out item: HR@K is 1 if any is among the first K; MRR its reciprocal rank."""
    best = levels.before == 0
    above, size, held_out = levels.above[best], levels.size[best], levels.held_out[best]
    total = running_sum(gains)
    found = (total[above + size] - total[above]) / size  # one of n, on each rank alike
    found = torch.where(size == held_out, gains[above], found)
    mixed = torch.nonzero((held_out > 1) & (held_out < size))[:, 0]
    if len(mixed):
        cases = [tuple(case) for case in torch.stack([above, size, held_out], 1)[mixed].tolist()]
        worth = {case: _first_of(gains, *case) for case in set(cases)}
        found[mixed] = torch.stack([worth[case] for case in cases])
    return found


def _first_of(gains: Float[Tensor, " p"], above: int, size: int, held_out: int) -> Float[Tensor, ""]:
    """P(first on rank a + j) = C(n - j, r - 1) / C(n, r), step by step from r / n."""
    j = torch.arange(1, size - held_out + 1, dtype=torch.float64)
    chance = torch.cat([torch.ones(1, dtype=torch.float64), ((size - j - held_out + 1) / (size - j)).cumprod(0)])
    return (gains[above : above + len(chance)] * chance * (held_out / size)).sum()


def of_all(levels: Levels, gains: Float[Tensor, " p"]) -> Float[Tensor, " C"]:
    """The mean gain of the held-out items: Recall@K is their share among the first K."""
    return levels.per_client(levels.between(gains) * levels.held_out / levels.size) / levels.n_items


def of_ideal(levels: Levels, gains: Float[Tensor, " p"]) -> Float[Tensor, " C"]:
    """The gains of the held-out items as a share of what they would be on the first ranks: NDCG@K."""
    best = running_sum(gains)[levels.n_items]
    return levels.per_client(levels.between(gains) * levels.held_out / levels.size) / best


def of_precision(levels: Levels, gains: Float[Tensor, " p"]) -> Float[Tensor, " C"]:
    """AP@K: the precision at each held-out item among the first K, summed, over min(K, held-out items).

    Gains are 1 / rank among the first K. Where rank a + j is that of a held-out item, up to there
    before + 1 + (j - 1)(r - 1) / (n - 1) held-out items are expected.
    """
    ranks = torch.arange(1, len(gains) + 1, dtype=torch.float64)
    sums, counts = levels.between(gains), levels.between(ranks * gains)
    inside = counts - (levels.above + 1) * sums  # sum of (j - 1) / rank
    more = (levels.held_out - 1).double() / (levels.size - 1).clamp(min=1)
    found = ((levels.before + 1) * sums + more * inside) * levels.held_out / levels.size
    return levels.per_client(found) / running_sum(ranks * gains)[levels.n_items]


def running_sum(values: Float[Tensor, " r"]) -> Float[Tensor, " s"]:
    """Entry i is the sum of the first i values."""
    return torch.cat([values.new_zeros(1), values.cumsum(0)])
