"""Whole item tables of many clients between a common table and a guide of each, without building them all.

A client that is pulled towards its guide moves every row without examples by the same share of the way, so its table is
known from that share and the rows it sent. Compiled in `kernels/guides.cpp` where that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.models.kernels import guides as kernel
from fedrecgel.models.kernels import kernels_allowed
from fedrecgel.models.kernels.compiler import LANES
from fedrecgel.numerics.graph import Smoother, cosines, cosines_of_rows, projected
from fedrecgel.tensors import put_rows

BLOCK = 1 << 21
"""Entries of tables handled at once: as many as stay in the cache."""
AT_ONCE = 1 << 26
"""Entries of new guides that a kernel makes before they are written."""


def blend(
    everything: Float[Tensor, "n d"],
    guides: Float[Tensor, "g n d"],
    which: Int[Tensor, " C"],
    way: Float[Tensor, " C"],
) -> Float[Tensor, "C n d"]:
    """Where tables without examples end up, in the precision of the guides: some way from the common one to the guide.

    A client whose way is 0 needs no guide.
    """
    if _compiled(everything):
        return kernel.blend(everything, guides, which, way)
    tables = everything.new_empty(len(way), *everything.shape, dtype=guides.dtype)
    for client, (guide, share) in enumerate(zip(which.tolist(), way, strict=True)):  # one at a time, in the cache
        end = guides[guide].to(everything.dtype) if share != 0 else everything
        tables[client] = torch.lerp(everything, end, share)
    return tables


def _compiled(like: Float[Tensor, "n d"]) -> bool:
    return kernels_allowed(like) and kernel.available(like.shape[1])


@dataclass(frozen=True, eq=False)
class GuidedTables:
    """Tables of C clients after a round, as the server knows them."""

    everything: Float[Tensor, "n d"]
    """The common table they started from."""
    guides: Float[Tensor, "g n d"]
    which: Int[Tensor, " C"]
    """Each client's guide."""
    way: Float[Tensor, " C"]
    """How far each went from the common table towards its guide; 0 for clients without one."""
    at: Int[Tensor, " k"]
    """Items of the rows that were sent, ascending …"""
    owner: Int[Tensor, " k"]
    """… the client of each …"""
    sent: Float[Tensor, "k d"]
    """… and what is added there."""

    @classmethod
    def of(
        cls,
        everything: Float[Tensor, "n d"],
        guides: Float[Tensor, "g n d"],
        which: Int[Tensor, " C"],
        way: Float[Tensor, " C"],
        rows: Sequence[tuple[Int[Tensor, "_ _"], Float[Tensor, "_ _ d"]]],
    ) -> GuidedTables:
        """From uploads of some clients each, one after another: which items, and their rows."""
        firsts = accumulate((len(at) for at, _ in rows), initial=0)
        owners = [
            torch.arange(first, first + len(at), device=at.device)[:, None].expand_as(at).flatten()
            for first, (at, _) in zip(firsts, rows, strict=False)
        ]
        at, order = torch.cat([at.flatten() for at, _ in rows]).sort(stable=True)
        sent = torch.cat([values.flatten(0, 1) for _, values in rows])[order]
        return cls(everything, guides, which, way, at, torch.cat(owners)[order], sent)

    def blocks(self, *, centred: bool) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """The tables in blocks of items: where, the tables, and what is compared: these or, centred, their changes."""
        dim = self.everything.shape[1]
        size = max(1, BLOCK // (len(self.which) * dim))
        for first in range(0, len(self.everything), size):
            block = slice(first, min(first + size, len(self.everything)))
            common = self.everything[block]
            change = self.guides[self.which, block].to(common.dtype).sub_(common).mul_(self.way[:, None, None])
            ends = torch.tensor([block.start, block.stop], device=self.at.device)
            here = slice(*torch.searchsorted(self.at, ends).tolist())
            place = self.owner[here] * change.shape[1] + self.at[here] - block.start
            change.view(-1, dim).index_add_(0, place, self.sent[here])
            if centred:
                yield block, common + change, change
            else:
                found = change.add_(common)
                yield block, found, found

    def cosines(self, *, centred: bool) -> Float[Tensor, "C C"]:
        """Similarities of whole tables."""
        return cosines(compared for _, _, compared in self.blocks(centred=centred))

    def projected_cosines(self, width: int, generator: np.random.Generator, *, centred: bool) -> Float[Tensor, "C C"]:
        """Similarities of random projections to `width` numbers (an approximation)."""
        if centred or width % LANES or not _compiled(self.everything):
            return cosines_of_rows(projected((one for _, _, one in self.blocks(centred=centred)), width, generator))
        signs = 2 * generator.integers(0, 2, self.everything.numel()) - 1
        sign = torch.from_numpy(signs).to(self.everything).view_as(self.everything)
        sums = kernel.project(self.everything, self.guides, self.which, self.way, sign, width)
        dim = self.everything.shape[1]
        place = (self.at[:, None] * dim + torch.arange(dim)) % width + self.owner[:, None] * width
        sums.view(-1).index_add_(0, place.flatten(), (self.sent * sign[self.at]).flatten())
        return cosines_of_rows(sums)

    def smooth(
        self, over: Smoother, hops: int, guides: Float[Tensor, "g n d"], to: Int[Tensor, " C"]
    ) -> Float[Tensor, "n d"]:
        """Write the tables, smoothed over a graph, to places of `guides`; returns the mean.

        Args:
            over: the graph.
            hops: how often tables are smoothed.
            guides: as they were, with room for more; what is read at `which` may be overwritten.
            to: where each client's new guide goes.
        """
        mean = torch.empty_like(self.everything)
        for block, found in self._smoothed(over, hops, mean):
            put_rows(guides, to, found, block)
        return mean

    def _smoothed(
        self, over: Smoother, hops: int, mean: Float[Tensor, "n d"]
    ) -> Iterator[tuple[slice, Float[Tensor, "C b d"]]]:
        """Smoothed tables in blocks of items; `mean` receives their mean."""
        if over.nearest is None or not _compiled(self.everything):
            for block, found, _ in self.blocks(centred=False):
                for _ in range(hops):
                    found = over(found)
                mean[block] = found.mean(0)
                yield block, found
            return
        starts = torch.searchsorted(self.at, torch.arange(len(self.everything) + 1))
        sent = (starts, self.owner, self.sent)
        size = max(1, AT_ONCE // (len(self.which) * self.everything.shape[1]))
        for first in range(0, len(self.everything), size):
            block = slice(first, min(first + size, len(self.everything)))
            read = (self.everything, self.guides, self.which, self.way, sent)
            yield block, kernel.smooth(*read, over.nearest, hops, block, mean)
