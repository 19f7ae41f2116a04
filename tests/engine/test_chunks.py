from __future__ import annotations

from itertools import combinations, pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrecgel.engine.chunks import CHUNK_COST, blocks_of, chunks_of

SIZES = st.lists(st.integers(0, 900), max_size=60).map(lambda sizes: sorted(sizes, reverse=True))


def padded(sizes: list[int], chunk: tuple[int, int]) -> int:
    return (chunk[1] - chunk[0]) * max(1, sizes[chunk[0]])


@given(SIZES, st.integers(1, 4000))
def test_every_client_is_in_one_chunk_that_fits(sizes: list[int], budget: int) -> None:
    chunks = chunks_of(torch.tensor(sizes, dtype=torch.int64), budget)
    assert [client for first, last in chunks for client in range(first, last)] == list(range(len(sizes)))
    assert all(last - first == 1 or padded(sizes, (first, last)) <= budget for first, last in chunks)


@given(st.sets(st.integers(100, 1500), min_size=1, max_size=9))
def test_no_other_cut_costs_less(distinct: set[int]) -> None:
    """Tried out: every way to cut a few clients, where a chunk may hold half of what is left."""
    sizes, budget = sorted(distinct, reverse=True), 3000

    def allowed(chunk: tuple[int, int]) -> bool:
        room = min(budget, max(budget, sum(sizes[chunk[0] :])) // 2)
        return chunk[1] - chunk[0] == 1 or padded(sizes, chunk) <= room

    def cost(chunks: list[tuple[int, int]]) -> int:
        return sum(padded(sizes, chunk) + CHUNK_COST for chunk in chunks)

    inner = range(1, len(sizes))
    cuts = [list(pairwise([0, *some, len(sizes)])) for n in range(len(sizes)) for some in combinations(inner, n)]
    assert cost(chunks_of(torch.tensor(sizes), budget)) == min(cost(cut) for cut in cuts if all(map(allowed, cut)))


def test_a_long_client_does_not_stretch_short_ones() -> None:
    assert chunks_of(torch.tensor([2000] + [100] * 10), 3072) == [(0, 1), (1, 11)]


def test_many_equal_clients_fill_the_chunks() -> None:
    chunks = chunks_of(torch.full((1000,), 25), 3072)
    assert len(chunks) < 1.1 * 25 * 1000 / 3072 + 3
    assert padded([25] * 1000, chunks[-1]) <= 3072 // 2


@given(SIZES, st.integers(1, 900), st.integers(1, 4000))
def test_blocks_hold_all_chunks_and_fit(sizes: list[int], chunk: int, budget: int) -> None:
    lengths = torch.tensor(sizes, dtype=torch.int64)
    chunks = chunks_of(lengths, chunk)
    blocks = blocks_of(chunks, lengths, budget)
    assert [chunk for block in blocks for chunk in block] == chunks
    spans = [sum(sizes[block[0][0] : block[-1][1]]) for block in blocks]
    assert all(len(block) == 1 or span <= budget for block, span in zip(blocks, spans, strict=True))
    starts = [sum(sizes[slice(*block[0])]) for block in blocks[1:]]
    assert all(span + more > budget for span, more in zip(spans, starts, strict=False))  # none could be longer
