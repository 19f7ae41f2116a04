"""Flatness against dense second derivatives and plain evaluation of the loss."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.builders import random_split
from torch import Tensor

import fedrecgel as fr
from fedrecgel.data.federation import Federation
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.runs.result import Result
from fedrecgel.runs.training import Interrupted
from fedrecgel.theory.flatness import FlatnessSettings, direction, measure_flatness, norm, surface, top_eigenvalue
from fedrecgel.theory.shared_loss import SharedLoss, move_by

SPLIT = random_split(n_users=8, n_items=120)
SMALL = FlatnessSettings(magnitudes=(1.0, 0.1), grid=3, clients=8, directions=4)


@pytest.fixture(scope="module")
def result() -> Result:
    # Steps large enough to leave the symmetric start, where the Hessian is nearly zero.
    return fr.train("fedncf", SPLIT, rounds=10, fraction=1.0, server_lr=0.05, gmf_dim=2, mlp_dim=2)


def test_the_loss_is_that_of_training(result: Result) -> None:
    """One client at a time, through the method's own local loss."""
    method = result.config.method.build()
    assert isinstance(method, FedNCF)
    method = replace(method, reduction="mean")
    federation, losses = Federation(SPLIT, dtype=torch.float64), []
    shared = {name: value.double() for name, value in result.shared.items()}
    for client in range(SPLIT.n_users):
        batch = federation.batch(torch.tensor([client]), 10, Draws(0))
        user = result.clients["user"][batch.ids].double()
        found = method.backbone.gradients(method.backbone.prepare(shared), user, method.local_loss(batch))
        losses.append(float(found.loss))
    loss = SharedLoss(result, SPLIT, 100)
    assert loss.value(loss.shared) == pytest.approx(sum(losses) / len(losses), rel=1e-12)


def test_the_top_eigenvalue_is_that_of_the_dense_hessian(result: Result) -> None:
    loss = SharedLoss(result, SPLIT, 4)
    names = ["out_gmf", "out_mlp", "out_bias", "w3", "b3"]  # a part small enough to build the matrix
    fixed = dict(loss.shared)
    sizes = [fixed[name].numel() for name in names]

    def total(flat: Tensor) -> Tensor:
        parts = dict(zip(names, torch.split(flat, sizes), strict=True))
        changed = {name: part.view_as(fixed[name]) for name, part in parts.items()}
        return loss.total({**fixed, **changed}, loss.rows)

    start = torch.cat([fixed[name].flatten() for name in names])
    dense = torch.autograd.functional.hessian(total, start)  # type: ignore[no-untyped-call]
    vector = {name: torch.zeros_like(value) for name, value in fixed.items()}
    top = torch.linalg.eigh(dense)
    for name, part in zip(names, torch.split(top.eigenvectors[:, -1], sizes), strict=True):
        vector[name] = part.view_as(fixed[name])
    image = loss.hessian_times(vector)
    found = torch.cat([image[name].flatten() for name in names])
    assert torch.allclose(found, dense @ top.eigenvectors[:, -1], atol=1e-10)
    # The whole matrix has this one as a part, so its top eigenvalue is at least as large.
    assert top_eigenvalue(loss, 200, 1e-6)[0] >= float(top.eigenvalues[-1]) - 1e-6


class Quadratic(SharedLoss):
    """½ θᵀ A θ with a known spectrum."""

    def __init__(self, eigenvalues: list[float]) -> None:
        self.diagonal = torch.tensor(eigenvalues, dtype=torch.float64)[:, None]
        self.shared = {"theta": torch.ones_like(self.diagonal)}

    def hessian_times(self, direction: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"theta": self.diagonal * direction["theta"]}


@pytest.mark.parametrize("spectrum", [[3.0, 1.0, 0.5, -1.0], [2.0, 1.0, -5.0], [-1.0, -4.0]])
def test_power_iteration_finds_the_largest_not_the_most_negative(spectrum: list[float]) -> None:
    assert top_eigenvalue(Quadratic(spectrum), 500, 1e-9)[0] == pytest.approx(max(spectrum), rel=1e-4)


def test_unit_directions_have_length_one_and_filter_directions_the_lengths_of_the_rows(result: Result) -> None:
    shared = SharedLoss(result, SPLIT, 4).shared
    first, second = direction(shared, "unit", 0), direction(shared, "unit", 1)
    assert norm(first) == pytest.approx(1)
    assert abs(sum(float((first[name] * second[name]).sum()) for name in first)) < 0.2
    rows = direction(shared, "filter", 0)
    for name, value in shared.items():
        assert torch.allclose(rows[name].norm(dim=1), value.norm(dim=1))


def test_a_surface_is_the_loss_at_its_points(result: Result) -> None:
    loss = SharedLoss(result, SPLIT, 8)
    first, second = (direction(loss.shared, "unit", number) for number in (0, 1))
    drawn = surface(loss, first, second, 2.0, 3)
    assert drawn.loss[1][1] == pytest.approx(loss.value(loss.shared))
    corner = move_by(loss.shared, (first, 2.0), (second, -2.0))  # rows over b, columns over a
    assert drawn.loss[0][2] == pytest.approx(loss.value(corner))
    values = [value for row in drawn.loss for value in row if value is not None]
    assert drawn.average == pytest.approx(sum(values) / 9)


def test_everything_at_once(result: Result) -> None:
    found = measure_flatness(result, SPLIT, SMALL)
    assert [item.magnitude for item in found.surfaces] == [1.0, 0.1]
    assert found.eigenvalue > 0
    assert found.gradient_norm > 0
    worst = [rise.worst for rise in found.rises]
    assert worst == sorted(worst)
    first = found.rises[0]
    assert first.worst == pytest.approx(first.radius * found.gradient_norm, rel=0.2)  # to first order
    assert all(math.isfinite(rise.mean) for rise in found.rises)
    with pytest.raises(Interrupted):
        measure_flatness(result, SPLIT, SMALL, lambda: True)


def test_other_methods_have_other_tensors() -> None:
    popularity = fr.train("popularity", SPLIT, rounds=1)
    with pytest.raises(ConfigError, match="fedncf and fedrecgel"):
        SharedLoss(popularity, SPLIT, 4)
