from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.models.gradients import perturb_in_place
from fedrecgel.tensors import client_norm


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 5), st.floats(1e-6, 1e6))
def test_each_client_moves_by_rho_along_its_own_gradient(seed: int, rho: float, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"w": (3, 2), "b": (1, 4)}
    shared = {name: torch.randn(*shape, generator=generator).double() for name, shape in shapes.items()}
    gradients = {
        name: scale * torch.randn(5, *value.shape, generator=generator).double() for name, value in shared.items()
    }
    moved = perturb_in_place(shared, {name: gradient.clone() for name, gradient in gradients.items()}, rho)
    epsilon = {name: moved[name] - shared[name] for name in shared}
    torch.testing.assert_close(client_norm(epsilon), torch.full((5,), rho, dtype=torch.float64), rtol=1e-6, atol=1e-12)
    for client in range(5):
        flat = torch.cat([gradients[name][client].flatten() for name in shared])
        step = torch.cat([epsilon[name][client].flatten() for name in shared])
        torch.testing.assert_close(step, rho * flat / flat.norm(), rtol=1e-6, atol=1e-9)


def test_balls_of_rows_move_every_item_by_rho_over_its_tables_together() -> None:
    """Two clients with three items each in two tables, worked out row by row; a row of padding stays."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (2, 3, 4), "b": (2, 3, 1), "w": (2, 5, 2)}
    gradients = {name: torch.randn(*shape, generator=generator).double() for name, shape in shapes.items()}
    for name in ("a", "b"):
        gradients[name][1, 2] = 0
    parameters = {name: torch.ones_like(value) for name, value in gradients.items()}
    moved = perturb_in_place(parameters, {name: g.clone() for name, g in gradients.items()}, 0.5, ("a", "b"))
    for client in range(2):
        for item in range(3):
            row = torch.cat([gradients["a"][client, item], gradients["b"][client, item]])
            step = torch.cat([moved["a"][client, item], moved["b"][client, item]]) - 1
            torch.testing.assert_close(step, 0.5 * row / (row.norm() + 1e-12))
        network = gradients["w"][client]
        torch.testing.assert_close(moved["w"][client] - 1, 0.5 * network / network.norm())


def test_a_zero_gradient_does_not_move_and_disturbs_nobody() -> None:
    value = torch.randn(2, 3, dtype=torch.float64)
    gradient = torch.stack([torch.zeros(3), torch.tensor([3.0, 0.0, 4.0])]).double()
    moved = perturb_in_place({"user": value}, {"user": gradient}, 0.5)["user"]
    assert torch.equal(moved[0], value[0])
    torch.testing.assert_close(moved[1] - value[1], torch.tensor([0.3, 0.0, 0.4], dtype=torch.float64))


def test_only_tensors_with_a_gradient_come_back_in_the_memory_of_these() -> None:
    parameters = {"w": torch.ones(2), "fixed": torch.ones(3)}
    gradients = {"w": torch.ones(4, 2)}
    moved = perturb_in_place(parameters, gradients, 1.0)
    assert {name: tuple(value.shape) for name, value in moved.items()} == {"w": (4, 2)}
    assert torch.equal(parameters["w"], torch.ones(2))
    assert moved["w"].data_ptr() == gradients["w"].data_ptr()
