"""A graph of similar clients from their item tables, and smoothing over it; tables come in blocks of items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag


def cosines(blocks: Iterable[Float[Tensor, "n _ d"]]) -> Float[Tensor, "n n"]:
    """Cosine similarity of whole tables.

    Tables may be so much alike that cosines differ by less than single precision resolves. Inner products are taken of
    what sets tables apart from their mean, and what they have in common is added in double precision.
    """
    products: Tensor | None = None
    for block in blocks:
        flat = block.flatten(1)
        middle = flat.mean(0)
        apart = flat - middle
        along = (apart @ middle).double()
        common = middle.double().square().sum() + along[:, None] + along[None, :]
        part = (apart @ apart.T).double() + common
        products = part if products is None else products + part
    if products is None:
        raise ValueError("there should be at least one block")
    return _normalise(products)


def projected(
    blocks: Iterable[Float[Tensor, "n _ d"]], width: int, generator: np.random.Generator
) -> Float[Tensor, "n w"]:
    """Randomly projected tables: every entry is added, with a random sign, to one of `width` sums in turn.

    Random signs keep inner products in expectation (Charikar et al., 2002), at one addition per entry.
    """
    sums: Tensor | None = None
    place = 0  # goes on from block to block, so that blocks of any size give the same
    for block in blocks:
        flat = block.flatten(1)
        sums = flat.new_zeros(len(flat), width) if sums is None else sums
        sign = torch.from_numpy(2 * generator.integers(0, 2, flat.shape[1]) - 1).to(flat)
        first = 0
        while first < flat.shape[1]:
            part = slice(first, min(first + width - place, flat.shape[1]))
            size = part.stop - first
            sums[:, place : place + size].addcmul_(flat[:, part], sign[part])
            first, place = part.stop, (place + size) % width
    if sums is None:
        raise ValueError("there should be at least one block")
    return sums


def cosines_of_rows(rows: Float[Tensor, "n w"]) -> Float[Tensor, "n n"]:
    """Cosine similarity of vectors, in double precision."""
    return _normalise(rows.double() @ rows.double().T)


def _normalise(products: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    lengths = products.diagonal().clamp(min=1e-24).sqrt()
    return products / lengths[:, None] / lengths[None, :]


@dataclass(frozen=True)
class Smoother:
    """Replaces each table by a mean over the client's neighbours."""

    weights: Float[Tensor, "n n"] | None
    nearest: Int[Tensor, "n k"] | None

    @classmethod
    def above_mean(cls, similarity: Float[Tensor, "n n"], factor: float) -> Smoother:
        """Neighbours are all strictly above factor × the mean similarity; the client itself if there are none."""
        linked = (similarity > factor * similarity.mean()).to(similarity.dtype)
        lonely = (linked.sum(1) == 0).nonzero()[:, 0]
        linked[lonely, lonely] = 1
        return cls(linked / linked.sum(1, keepdim=True), None)

    @classmethod
    def k_nearest(cls, similarity: Float[Tensor, "n n"], k: int) -> Smoother:
        """Neighbours are the k most similar, the client itself included if it is among them."""
        return cls(None, similarity.topk(min(k, len(similarity)), dim=1).indices)

    def __call__(self, tables: Float[Tensor, "n i d"]) -> Float[Tensor, "n i d"]:
        """One hop."""
        if self.weights is not None:
            return (self.weights.to(tables.dtype) @ tables.flatten(1)).view_as(tables)
        if self.nearest is None:
            return tables
        return embedding_bag(self.nearest, tables.flatten(1), mode="mean").view_as(tables)
