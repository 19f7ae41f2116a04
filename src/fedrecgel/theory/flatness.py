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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.data.federation import ClientBatch, Federation
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.chunks import chunks_of
from fedrecgel.errors import ConfigError
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.runs.result import Result
from fedrecgel.runs.training import Interrupted
from fedrecgel.tensors import Tensors

Normalisation = Literal["unit", "filter"]
MAGNITUDES = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4)
"""Those of the paper's table."""
RADII = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class FlatnessSettings:
    """How much is measured."""

    normalisation: Normalisation = "unit"
    magnitudes: tuple[float, ...] = MAGNITUDES
    grid: int = 15
    """Points along each axis of a surface, odd, so that the model itself is one of them; 0 draws none."""
    clients: int = 200
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


class SharedLoss:
    """The training loss of some clients as a function of the shared tensors."""

    def __init__(self, result: Result, split: Split, n_clients: int) -> None:
        method = result.config.method.build()
        if not isinstance(method, FedNCF):
            raise ConfigError(
                f"The landscape is drawn over the shared tensors of fedncf and fedrecgel. "
                f"'{result.config.method.name}' has other ones."
            )
        self.method = method
        # In float64: at a magnitude of 1e-4 the rounding of float32 is as large as the rise of the loss.
        self.shared = {name: value.double() for name, value in result.shared.items()}
        draws = Draws(result.config.run.seed)
        chosen = np.sort(Draws(0).generator("flatness/clients").permutation(split.n_users)[:n_clients])
        federation = Federation(split, result.config.sampling, torch.float64)
        lengths, order = federation.n_examples(torch.from_numpy(chosen)).sort(descending=True)
        examples = federation.examples(torch.from_numpy(chosen)[order], result.config.run.rounds, draws)
        chunks = chunks_of(lengths, result.config.local.chunk_examples)
        self.batches: list[ClientBatch] = [examples.batch(*chunk) for chunk in chunks]
        self.users = [result.clients["user"][batch.ids].double() for batch in self.batches]
        self.n_clients = len(chosen)

    def _terms(self, shared: Tensors) -> Iterator[Float[Tensor, ""]]:
        model, prepared = self.method.backbone, self.method.backbone.prepare(shared)
        for batch, user in zip(self.batches, self.users, strict=True):
            logits = model.scores(prepared, user, batch.rows)
            losses = binary_cross_entropy_with_logits(
                logits, batch.row_labels, batch.row_weights(None), reduction="none"
            )
            yield losses.sum() / self.n_clients

    def value(self, shared: Tensors) -> float:
        """The loss."""
        with torch.no_grad():
            return sum(float(term) for term in self._terms(shared))

    def gradient(self) -> Tensors:
        """At the model."""
        leaves = {name: value.clone().requires_grad_() for name, value in self.shared.items()}
        total = torch.stack(list(self._terms(leaves))).sum()
        return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))

    def hessian_times(self, direction: Tensors) -> Tensors:
        """H v at the model, by differentiating the gradient along v."""
        leaves = {name: value.clone().requires_grad_() for name, value in self.shared.items()}
        total = torch.stack(list(self._terms(leaves))).sum()
        gradients = torch.autograd.grad(total, list(leaves.values()), create_graph=True)
        slope = torch.stack([(g * direction[name]).sum() for name, g in zip(leaves, gradients, strict=True)]).sum()
        return dict(zip(leaves, torch.autograd.grad(slope, list(leaves.values())), strict=True))


def measure_flatness(
    result: Result, split: Split, settings: FlatnessSettings, should_stop: Callable[[], bool] = lambda: False
) -> Flatness:
    """Measure the loss around the model of a run."""
    loss = SharedLoss(result, split, settings.clients)
    centre, gradient = loss.value(loss.shared), loss.gradient()
    first, second = (direction(loss.shared, settings.normalisation, number) for number in (0, 1))
    surfaces = []
    for magnitude in settings.magnitudes if settings.grid else ():
        if should_stop():
            raise Interrupted(0)
        surfaces.append(surface(loss, first, second, magnitude, settings.grid))
    eigenvalue, iterations = top_eigenvalue(loss, settings.iterations)
    rises = [_rise(loss, centre, gradient, radius, settings.directions) for radius in RADII]
    return Flatness(settings, centre, norm(gradient), surfaces, eigenvalue, iterations, rises)


def direction(shared: Tensors, normalisation: str, number: int) -> Tensors:
    """A random direction; the same for every model of these shapes."""
    generator = Draws(number).generator("flatness/direction")
    drawn = {
        name: torch.from_numpy(generator.standard_normal(tuple(shared[name].shape))).to(shared[name].dtype)
        for name in sorted(shared)
    }
    if normalisation == "unit":
        return scaled(drawn, 1 / norm(drawn))
    return {
        name: value * (_row_norm(shared[name]) / _row_norm(value).clamp(min=1e-12)) for name, value in drawn.items()
    }


def _row_norm(value: Float[Tensor, "r c"]) -> Float[Tensor, "r 1"]:
    length: Tensor = torch.linalg.vector_norm(value, dim=1, keepdim=True)
    return length


def surface(loss: SharedLoss, first: Tensors, second: Tensors, magnitude: float, grid: int) -> Surface:
    """The loss on a square around the model."""
    steps = np.linspace(-magnitude, magnitude, grid).tolist()
    values = [[loss.value(moved_by(loss.shared, (first, a), (second, b))) for a in steps] for b in steps]
    average = float(np.mean(values))
    finite = [[value if math.isfinite(value) else None for value in row] for row in values]
    return Surface(magnitude, finite, average if math.isfinite(average) else None)


def moved_by(shared: Tensors, *steps: tuple[Tensors, float]) -> Tensors:
    """θ + Σ a d."""
    moved = dict(shared)
    for along, length in steps:
        moved = {name: torch.add(value, along[name], alpha=length) for name, value in moved.items()}
    return moved


def norm(values: Tensors) -> float:
    """Euclidean norm of all tensors together."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in values.values()))


def scaled(values: Tensors, by: float) -> Tensors:
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
        image = moved_by(image, (vector, -shift))
        length = norm(image)
        if length == 0 or abs(quotient - value) <= tolerance * abs(quotient):
            return quotient, step
        value, vector = quotient, scaled(image, 1 / length)
    return value, limit


def _rise(loss: SharedLoss, centre: float, gradient: Tensors, radius: float, n_directions: int) -> Rise:
    rises = [
        loss.value(moved_by(loss.shared, (direction(loss.shared, "unit", 100 + number), radius))) - centre
        for number in range(n_directions)
    ]
    length = norm(gradient)
    worst = loss.value(moved_by(loss.shared, (gradient, radius / length))) - centre if length else 0.0
    return Rise(radius, float(np.mean(rises)), float(np.std(rises, ddof=1)) if len(rises) > 1 else 0.0, worst)
