"""k-means, elbow and assignment against plain writings of their definitions."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedrecgel.numerics.cluster import assignment, elbow, kmeans


def blobs(n_per: int, k: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Well separated clusters of points, in random order, and who belongs where."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(k), n_per))
    centres = 20 * np.eye(k, dim) + np.arange(k)[:, None]
    points = centres[labels] + generator.normal(size=(len(labels), dim))
    return torch.from_numpy(points), torch.from_numpy(labels)


def inertia_of(points: Tensor, labels: Tensor) -> float:
    """Sum over clusters of squared distances from their mean."""
    groups = [points[labels == label] for label in torch.unique(labels)]
    return sum(float((group - group.mean(0)).square().sum()) for group in groups)


def plain_kmeans(points: list[list[float]], k: int, generator: np.random.Generator, restarts: int) -> float:
    """Lloyd's algorithm to convergence from random points, in Python; the best inertia found."""
    array, best = np.array(points), np.inf
    for _ in range(restarts):
        centres = array[generator.choice(len(array), k, replace=False)]
        while True:
            owner = np.array([min(range(k), key=lambda c, p=p: float(((p - centres[c]) ** 2).sum())) for p in array])  # type: ignore[misc]
            moved = np.array([array[owner == c].mean(0) if (owner == c).any() else centres[c] for c in range(k)])
            if np.allclose(moved, centres):
                break
            centres = moved
        best = min(best, float(((array - centres[owner]) ** 2).sum()))
    return best


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finds_planted_clusters(dtype: torch.dtype) -> None:
    points, planted = blobs(15, 4, 5)
    found = kmeans(points.to(dtype), 4, np.random.default_rng(1))
    for label in range(4):
        assert len(set(planted[found.labels == label].tolist())) == 1
    for label, centre in enumerate(found.centres):
        assert torch.allclose(points[found.labels == label].mean(0).to(dtype), centre, atol=1e-4)
    assert found.inertia == pytest.approx(inertia_of(points, planted), rel=1e-4)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_is_as_tight_as_a_plain_writing(k: int) -> None:
    """On points without structure, where starts matter: now better, now a few per cent worse, as tight on average."""
    ratios = []
    for seed in range(6):
        points = np.random.default_rng(seed).normal(size=(30, 2))
        found = kmeans(torch.from_numpy(points), k, np.random.default_rng(seed), restarts=20)
        ratios.append(found.inertia / plain_kmeans(points.tolist(), k, np.random.default_rng(seed + 1), restarts=10))
    assert np.mean(ratios) <= 1 + 1e-9
    assert max(ratios) <= 1.05


@given(seed=st.integers(0, 1000), n=st.integers(1, 20), k=st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_every_point_is_with_its_nearest_centre(seed: int, n: int, k: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(n, 3)))
    found = kmeans(points, k, np.random.default_rng(seed), restarts=3)
    assert found.centres.shape == (min(k, n), 3)
    nearest = torch.stack([(points - centre).square().sum(1) for centre in found.centres], dim=1)
    assert torch.allclose(nearest.gather(1, found.labels[:, None])[:, 0], nearest.min(1).values)
    assert found.inertia == pytest.approx(float(nearest.min(1).values.sum()), abs=1e-9)


def test_same_generator_same_bits() -> None:
    points, _ = blobs(10, 3, 4)
    first, second = (kmeans(points, 5, np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(first.labels, second.labels)
    assert torch.equal(first.centres, second.centres)


def test_more_clusters_than_points_puts_each_alone() -> None:
    points = torch.tensor([[0.0], [1.0], [5.0]])
    found = kmeans(points, 9, np.random.default_rng(0))
    assert sorted(found.labels.tolist()) == [0, 1, 2]
    assert found.inertia == 0


def test_more_clusters_than_different_points() -> None:
    """Clusters that stay empty do no harm."""
    points = torch.tensor([[1.0, 1.0]] * 5 + [[4.0, 4.0]] * 3)
    found = kmeans(points, 4, np.random.default_rng(0))
    assert found.inertia == 0
    assert torch.isfinite(found.centres).all()
    assert found.labels[0] != found.labels[5]


def perpendicular(curve: list[float], stretch_x: float, stretch_y: float) -> list[float]:
    """Distance of every point (rank, value) to the line through the ends, as geometry has it."""
    points = np.array([[stretch_x * rank, stretch_y * value] for rank, value in enumerate(curve)])
    along = points[-1] - points[0]
    across = np.array([-along[1], along[0]]) / np.linalg.norm(along)
    return [abs(float((point - points[0]) @ across)) for point in points]


@given(
    values=st.lists(st.floats(-50, 50, width=32), min_size=3, max_size=12),
    stretch_x=st.floats(0.01, 100),
    stretch_y=st.floats(0.01, 100),
)
def test_elbow_is_farthest_from_the_chord_however_axes_are_scaled(
    values: list[float], stretch_x: float, stretch_y: float
) -> None:
    curve = sorted(values, reverse=True)
    distances = perpendicular(curve, stretch_x, stretch_y)
    found = elbow(torch.tensor(curve, dtype=torch.float64))
    assert distances[found] >= max(distances) * (1 - 1e-6) - 1e-9


@pytest.mark.parametrize(
    ("curve", "index"),
    [([1.0], 0), ([2.0, 1.0], 0), ([9, 8.9, 8.8, 1, 0.9], 2), ([9.0, 1, 0.9, 0.8, 0.7], 1), ([5, 5, 5, 5, 0.0], 3)],
)
def test_elbow_of_plain_curves(curve: list[float], index: int) -> None:
    """Either side of the chord: a plateau that ends, or a fall that ends."""
    assert elbow(torch.tensor(curve)) == index


@given(data=st.data(), size=st.integers(1, 6))
def test_assignment_is_the_cheapest_permutation(data: st.DataObject, size: int) -> None:
    cell = st.one_of(st.floats(-10, 10, width=32), st.sampled_from([0.0, 1.0]))  # ties as well
    cost = data.draw(st.lists(st.lists(cell, min_size=size, max_size=size), min_size=size, max_size=size))
    columns = assignment(torch.tensor(cost, dtype=torch.float64))
    assert sorted(columns) == list(range(size))
    cheapest = min(sum(cost[row][column] for row, column in enumerate(order)) for order in permutations(range(size)))
    assert sum(cost[row][column] for row, column in enumerate(columns)) == pytest.approx(cheapest, abs=1e-9)
