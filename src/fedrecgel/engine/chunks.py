"""Which clients are trained together: those of similar lengths, because all are padded to the longest."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import inf

from jaxtyping import Int
from torch import Tensor

CHUNK_COST = 300
"""What a chunk costs however small it is, in examples that take the same time."""

Chunk = tuple[int, int]
"""A range of clients: the first, and the one behind the last."""


def chunks_of(lengths: Int[Tensor, " C"], budget: int) -> list[Chunk]:
    """Ranges of clients, longest first: the cut that costs least in padded examples and chunks together.

    A chunk holds at most `budget` examples after padding, or one client. Those at the end hold less, so that workers
    finish at about the same time. Any number of workers gets the same chunks.
    """
    sizes = [max(1, size) for size in lengths.tolist()]
    bounds = _pieces(sizes, budget // 4)
    done = [0, *accumulate(sizes)]
    best, before = [0.0] + [inf] * (len(bounds) - 1), [0] * len(bounds)
    for i, first in enumerate(bounds[:-1]):
        room = min(budget, max(budget, done[-1] - done[first]) // 2)
        for j in range(i + 1, len(bounds)):
            padded = (bounds[j] - first) * sizes[first]
            if padded > room and j > i + 1:
                break
            if best[i] + padded + CHUNK_COST < best[j]:
                best[j], before[j] = best[i] + padded + CHUNK_COST, i

    cuts = [len(bounds) - 1]
    while cuts[-1] > 0:
        cuts.append(before[cuts[-1]])
    return [(bounds[i], bounds[j]) for j, i in pairwise(cuts)][::-1]


def blocks_of(chunks: list[Chunk], lengths: Int[Tensor, " C"], budget: int) -> list[list[Chunk]]:
    """The same chunks in runs whose clients have at most `budget` examples together, or of one chunk."""
    sizes = [int(lengths[first:last].sum()) for first, last in chunks]
    blocks: list[list[Chunk]] = []
    room = 0
    for chunk, size in zip(chunks, sizes, strict=True):
        if size > room or not blocks:
            blocks.append([])
            room = budget
        blocks[-1].append(chunk)
        room -= size
    return blocks


def _pieces(sizes: list[int], most: int) -> list[int]:
    """Bounds of runs of equal sizes, each of at most `most` together or one client: where a cut may be."""
    bounds, start = [0], 0
    for client in range(1, len(sizes) + 1):
        inside = client < len(sizes) and sizes[client] == sizes[start]
        if not inside or (client + 1 - start) * sizes[start] > most:
            bounds.append(client)
            start = client
    return bounds
