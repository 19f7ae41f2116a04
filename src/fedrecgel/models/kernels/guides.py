"""guides.cpp, compiled steps on whole tables of many clients."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.models.kernels.compiler import LANES, Recipe, library

SUFFIX = {torch.float32: "full", torch.bfloat16: "half"}
"""Names of the functions by the precision in which guides are kept."""


def recipe(dim: int) -> Recipe | None:
    """For vectors of this size."""
    return Recipe.of("guides.cpp", D=dim)


def available(dim: int) -> bool:
    """Whether it can be built here for vectors of this size."""
    return library(recipe(dim)) is not None


def _call(name: str, guides: Tensor, *arguments: object) -> None:
    compiled = library(recipe(guides.shape[2]))
    if compiled is None:
        raise RuntimeError("there are no compiled guides here")
    compiled.call(f"{name}_{SUFFIX[guides.dtype]}", *arguments)  # type: ignore[arg-type]


def blend(
    everything: Float[Tensor, "n d"], guides: Float[Tensor, "g n d"], which: Int[Tensor, " C"], way: Float[Tensor, " C"]
) -> Float[Tensor, "C n d"]:
    """As `models.guided.blend`.

    Raises:
        RuntimeError: it is not available.
    """
    tables = guides.new_empty(len(which), *everything.shape)
    _call("blend", guides, (len(which), len(everything)), (guides, which, everything, way), (), (tables,))
    return tables


def project(
    everything: Float[Tensor, "n d"],
    guides: Float[Tensor, "g n d"],
    which: Int[Tensor, " C"],
    way: Float[Tensor, " C"],
    sign: Float[Tensor, "n d"],
    width: int,
) -> Float[Tensor, "C w"]:
    """Sums of signed entries of what `blend` makes, without making it.

    Raises:
        RuntimeError: it is not available.
        ValueError: the width is no multiple of the vector length.
    """
    if width % LANES:
        raise ValueError(f"the width should be a multiple of {LANES}, and is {width}")
    sums = everything.new_empty(len(which), width)

    def part(first: int, last: int) -> None:
        read = (guides, which[first:last], everything, sign, way[first:last])
        _call("project", guides, (last - first, len(everything), width), read, (), (sums[first:last],))

    _in_parts(part, len(which))
    return sums


def smooth(
    everything: Float[Tensor, "n d"],
    guides: Float[Tensor, "g n d"],
    which: Int[Tensor, " C"],
    way: Float[Tensor, " C"],
    sent: tuple[Int[Tensor, " m"], Int[Tensor, " k"], Float[Tensor, "k d"]],
    nearest: Int[Tensor, "C q"],
    hops: int,
    block: slice,
    mean: Float[Tensor, "n d"],
) -> Float[Tensor, "C b d"]:
    """Some items of tables smoothed over neighbours; their mean over clients goes into `mean`.

    Args:
        everything: the common table.
        guides: of which each client has one.
        which: each client's guide.
        way: how far its table went towards it.
        sent: where the rows of each item begin, and behind the last item; the client of each; the rows.
        nearest: each client's neighbours.
        hops: how often tables are smoothed.
        block: the items.
        mean: of the whole catalogue.

    Raises:
        RuntimeError: it is not available.
    """
    width = block.stop - block.start
    found = guides.new_empty(len(which), width, everything.shape[1])

    def part(first: int, last: int) -> None:
        items = (block.start + first, block.start + last, block.start, width)
        sizes = (len(which), len(everything), nearest.shape[1], hops, *items)
        _call("smooth", guides, sizes, (guides, which, everything, way, *sent, nearest), (), (found, mean))

    _in_parts(part, width)
    return found


def _in_parts(function: Callable[[int, int], None], n: int) -> None:
    """A function of a range in as many threads as PyTorch may use here."""
    threads = max(1, min(n, torch.get_num_threads()))
    bounds = [n * part // threads for part in range(threads + 1)]
    if threads == 1:
        function(0, n)
        return
    with ThreadPoolExecutor(threads) as workers:
        list(workers.map(function, bounds[:-1], bounds[1:]))
