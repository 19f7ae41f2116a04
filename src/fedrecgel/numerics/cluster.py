"""k-means, the elbow of a curve and the matching of clusters: what servers do with many vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


class Clusters(NamedTuple):
    """Which cluster each point is in, where the clusters are, and how spread out."""

    labels: Int[Tensor, " n"]
    centres: Float[Tensor, "k d"]
    inertia: float


def kmeans(
    points: Float[Tensor, "n d"],
    k: int,
    generator: np.random.Generator,
    restarts: int = 10,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> Clusters:
    """Lloyd's algorithm from k-means++ starts (Arthur and Vassilvitskii, 2007); the tightest of several runs.

    Stops when inertia falls by less than `tolerance` of itself. At most as many clusters as points; an empty cluster
    moves to the point farthest from its own centre.
    """
    k = min(k, len(points))
    runs = (_lloyd(points, _spread_start(points, k, generator), iterations, tolerance) for _ in range(restarts))
    return min(runs, key=lambda run: run.inertia)


def _spread_start(points: Float[Tensor, "n d"], k: int, generator: np.random.Generator) -> Float[Tensor, "k d"]:
    """Each next centre is a point drawn in proportion to its squared distance from the nearest centre so far."""
    chosen = [int(generator.integers(len(points)))]
    nearest = (points - points[chosen[0]]).square().sum(1)
    while len(chosen) < k:
        reach = nearest.double().cumsum(0)
        drawn = torch.searchsorted(reach, reach[-1] * generator.random(), right=True)
        chosen.append(min(int(drawn), len(points) - 1))
        nearest = torch.minimum(nearest, (points - points[chosen[-1]]).square().sum(1))
    return points[torch.tensor(chosen, device=points.device)]


def _lloyd(points: Float[Tensor, "n d"], centres: Float[Tensor, "k d"], iterations: int, tolerance: float) -> Clusters:
    before, lengths = float("inf"), points.square().sum(1)
    for _ in range(iterations):
        distances, labels = _nearest(points, lengths, centres)
        inertia = float(distances.sum())
        if before - inertia <= tolerance * inertia:
            break
        before = inertia
        sizes = torch.bincount(labels, minlength=len(centres)).to(points.dtype)
        sums = torch.zeros_like(centres).index_add_(0, labels, points)
        centres = sums / sizes.clamp(min=1)[:, None]
        empty = (sizes == 0).nonzero()[:, 0]
        if len(empty):
            centres[empty] = points[distances.topk(len(empty)).indices]
    distances, labels = _nearest(points, lengths, centres)
    return Clusters(labels, centres, float(distances.sum()))


def _nearest(
    points: Float[Tensor, "n d"], lengths: Float[Tensor, " n"], centres: Float[Tensor, "k d"]
) -> tuple[Float[Tensor, " n"], Int[Tensor, " n"]]:
    """Squared distance to the nearest centre, |p|² - 2pc + |c|², and which that is."""
    beyond, labels = torch.addmm(centres.square().sum(1)[:, None], centres, points.T, alpha=-2).min(0)
    return (beyond + lengths).clamp_(min=0), labels


def elbow(falling: Float[Tensor, " n"]) -> int:
    """Where a sorted curve bends most: the index farthest from the straight line between its ends."""
    if len(falling) < 3:
        return 0
    x = torch.linspace(0, 1, len(falling), dtype=falling.dtype, device=falling.device)
    chord = falling[0] + (falling[-1] - falling[0]) * x
    return int((falling - chord).abs().argmax())


def assignment(cost: Float[Tensor, "k k"]) -> list[int]:
    """The column of each row in the cheapest one-to-one assignment."""
    from scipy.optimize import linear_sum_assignment  # half a second that every other method saves

    columns: list[int] = linear_sum_assignment(cost.double().cpu().numpy())[1].tolist()
    return columns
