"""How flat the loss is around a trained model: pictures along random directions, and numbers that need no picture.

The loss is the training loss: binary cross-entropy on the labelled examples of one more round, mean over each client's
examples and then over clients, as a function of the shared tensors (item tables and network); user vectors stay.

Directions. Two vectors of independent normal numbers over all shared parameters. `unit`: each is scaled to length 1
as a whole, and the magnitude m is the distance in parameter space; "we randomly perturb two dimensions of the model
parameters" is all the paper says, and this is the reading under which its losses at magnitude 10 stay near those at
1e-4. `filter` (Li et al., 2018): each row of a matrix or table is scaled to the length of the model's own row, so that
m is relative to the weights and models of different scale can be compared; m = 1 replaces them by noise of their size.
The surface is the loss at θ + a d1 + b d2 for a, b on a square grid over [-m, m].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.runs.result import Result
from fedrecgel.runs.training import Interrupted
from fedrecgel.tensors import Tensors
from fedrecgel.theory.shared_loss import SharedLoss, move_by

Normalisation = Literal["unit", "filter"]
MAGNITUDES = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4)
"""Those of the paper's table."""
RADII = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class FlatnessSettings:
    """How much is measured."""

    normalisation: Normalisation = "unit"
    magnitudes: tuple[float, ...] = MAGNITUDES
    grid: int = 11
    """Points along each axis of a surface, odd, so that the model itself is one of them; 0 draws none."""
    clients: int = 50
    """Clients whose examples make up the loss, drawn once; all if there are fewer."""
    directions: int = 10
    """Random directions of the expected rise."""
    iterations: int = 40
    """Limit of the power iteration."""


@dataclass(frozen=True)
class Surface:
    """The loss on a square grid; None where it is not finite."""

    magnitude: float
    loss: list[list[float | None]]
    """Rows over b, columns over a, both from -magnitude to magnitude."""
    average: float | None


@dataclass(frozen=True)
class Rise:
    """How much the loss rises at a distance from the model."""

    radius: float
    mean: float
    """Over random unit directions."""
    sd: float
    worst: float
    """Along the gradient, as SAM looks for it."""


@dataclass(frozen=True)
class Flatness:
    """All that was measured around one model."""

    settings: FlatnessSettings
    loss: float
    """At the model."""
    gradient_norm: float
    surfaces: list[Surface]
    eigenvalue: float
    """Largest of the Hessian, by power iteration."""
    iterations: int
    rises: list[Rise]


@dataclass(frozen=True)
class Numbers:
    """What needs no picture, and does not depend on how directions are scaled."""

    loss: float
    gradient_norm: float
    eigenvalue: float
    iterations: int
    rises: list[Rise]


def measure_flatness(
    result: Result, split: Split, settings: FlatnessSettings, should_stop: Callable[[], bool] = lambda: False
) -> Flatness:
    """Measure the loss around the model of a run."""
    loss = _loss_of(result, split, settings.clients)
    first, second = (direction(loss.shared, settings.normalisation, number) for number in (0, 1))
    surfaces = []
    for magnitude in settings.magnitudes if settings.grid else ():
        if should_stop():
            raise Interrupted(0)
        surfaces.append(surface(loss, first, second, magnitude, settings.grid))
    found = _numbers_of(loss, settings.iterations, settings.directions)
    return Flatness(
        settings, found.loss, found.gradient_norm, surfaces, found.eigenvalue, found.iterations, found.rises
    )


@lru_cache(maxsize=1)
def _loss_of(result: Result, split: Split, clients: int) -> SharedLoss:
    """One is kept: a run is measured in several normalisations, one after another."""
    return SharedLoss(result, split, clients)


@lru_cache(maxsize=1)
def _numbers_of(loss: SharedLoss, limit: int, n_directions: int) -> Numbers:
    centre, gradient = loss.value(loss.shared), loss.gradient()
    eigenvalue, iterations = top_eigenvalue(loss, limit)
    return Numbers(centre, norm(gradient), eigenvalue, iterations, _rises(loss, centre, gradient, n_directions))


def direction(shared: Tensors, normalisation: str, number: int) -> Tensors:
    """A random direction; the same for every model of these shapes."""
    generator = Draws(number).generator("flatness/direction")
    drawn = {
        name: torch.from_numpy(generator.standard_normal(tuple(shared[name].shape))).to(shared[name].dtype)
        for name in sorted(shared)
    }
    if normalisation == "unit":
        return scale(drawn, 1 / norm(drawn))
    return {
        name: value * (_row_norm(shared[name]) / _row_norm(value).clamp(min=1e-12)) for name, value in drawn.items()
    }


def _row_norm(value: Float[Tensor, "r c"]) -> Float[Tensor, "r 1"]:
    length: Tensor = torch.linalg.vector_norm(value, dim=1, keepdim=True)
    return length


def surface(loss: SharedLoss, first: Tensors, second: Tensors, magnitude: float, grid: int) -> Surface:
    """The loss on a square around the model."""
    steps = np.linspace(-magnitude, magnitude, grid).tolist()
    points = loss.values([((first, a), (second, b)) for b in steps for a in steps])
    values = [points[start : start + grid] for start in range(0, grid * grid, grid)]
    average = float(np.mean(values))
    finite = [[value if math.isfinite(value) else None for value in row] for row in values]
    return Surface(magnitude, finite, average if math.isfinite(average) else None)


def norm(values: Tensors) -> float:
    """Euclidean norm of all tensors together."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in values.values()))


def scale(values: Tensors, by: float) -> Tensors:
    """All tensors times a number."""
    return {name: value * by for name, value in values.items()}


def top_eigenvalue(loss: SharedLoss, limit: int, tolerance: float = 1e-3) -> tuple[float, int]:
    """The largest eigenvalue of the Hessian, and the products it took.

    Power iteration finds the eigenvalue of largest absolute value. Should that be negative, the iteration is repeated
    on H - λ I, whose largest one belongs to the largest eigenvalue of H.
    """
    found, steps = _power_iteration(loss, 0.0, limit, tolerance)
    if found < 0:
        found, more = _power_iteration(loss, found, limit, tolerance)
        steps += more
    return found, steps


def _power_iteration(loss: SharedLoss, shift: float, limit: int, tolerance: float) -> tuple[float, int]:
    vector = direction(loss.shared, "unit", 2)
    value = math.inf
    for step in range(1, limit + 1):
        image = loss.hessian_times(vector)
        quotient = sum(float((image[name] * vector[name]).double().sum()) for name in image)
        image = move_by(image, (vector, -shift))
        length = norm(image)
        if length == 0 or abs(quotient - value) <= tolerance * abs(quotient):
            return quotient, step
        value, vector = quotient, scale(image, 1 / length)
    return value, limit


def _rises(loss: SharedLoss, centre: float, gradient: Tensors, n_directions: int) -> list[Rise]:
    length = norm(gradient)
    along = [direction(loss.shared, "unit", 100 + number) for number in range(n_directions)]
    along += [scale(gradient, 1 / length)] if length else []
    values = loss.values([((towards, radius),) for radius in RADII for towards in along])
    found = []
    for number, radius in enumerate(RADII):
        rises = [value - centre for value in values[number * len(along) : (number + 1) * len(along)]]
        worst = rises.pop() if length else 0.0
        spread = float(np.std(rises, ddof=1)) if len(rises) > 1 else 0.0
        found.append(Rise(radius, float(np.mean(rises)), spread, worst))
    return found
