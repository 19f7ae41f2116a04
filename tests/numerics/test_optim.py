from __future__ import annotations

import pytest
import torch

from fedrecgel.numerics.optim import active_adam, adam_moments, client_adam, fresh_adam, server_adam

torch_rng = torch.Generator().manual_seed(0)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch_rng, dtype=torch.float64)


def test_client_adam_against_one_optimiser_per_client() -> None:
    """Clients take part in different rounds, so their numbers of steps differ."""
    start = random(4, 7)
    parameters = [torch.nn.Parameter(row.clone()) for row in start]
    optimisers = [torch.optim.Adam([parameter], lr=0.1) for parameter in parameters]
    value, first, second = start, torch.zeros_like(start), torch.zeros_like(start)
    steps = torch.zeros(4, dtype=torch.int64)
    for cohort in ([0, 1, 2], [2], [3, 2], [0, 2], [1], [2, 0]):
        ids = torch.tensor(cohort)
        gradient = random(len(cohort), 7)
        if cohort == [0, 2]:
            gradient[1] = 0  # a client without a gradient still moves by its momentum
        new = client_adam(value[ids], gradient, first[ids], second[ids], steps[ids], lr=0.1)
        for tensor, part in zip((value, first, second, steps), new, strict=True):
            tensor[ids] = part
        for client, row in zip(cohort, gradient, strict=True):
            parameters[client].grad = row.clone()
            optimisers[client].step()
    expected = torch.stack([parameter.detach() for parameter in parameters])
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    assert steps.tolist() == [3, 2, 5, 1]


def test_client_adam_leaves_its_inputs() -> None:
    inputs = (random(3, 5), random(3, 5), random(3, 5), random(3, 5).square(), torch.tensor([0, 4, 9]))
    before = [tensor.clone() for tensor in inputs]
    client_adam(*inputs, lr=0.1)
    assert all(torch.equal(old, new) for old, new in zip(before, inputs, strict=True))


def test_clients_that_are_not_active_stay_as_they_are() -> None:
    value, gradients = random(3, 2, 4), [random(3, 2, 4) for _ in range(3)]
    turns = [torch.tensor([True, True, True]), torch.tensor([True, False, True]), torch.tensor([False, False, True])]
    found, state = value, fresh_adam(value)
    for gradient, active in zip(gradients, turns, strict=True):
        found, state = active_adam(found, gradient, state, active, 0.1)
    for client, steps in enumerate((2, 1, 3)):
        parameter = torch.nn.Parameter(value[client].clone())
        optimiser = torch.optim.Adam([parameter], lr=0.1)
        for gradient in gradients[:steps]:
            parameter.grad = gradient[client].clone()
            optimiser.step()
        torch.testing.assert_close(found[client], parameter.detach(), rtol=1e-12, atol=1e-14)
    assert state.steps.tolist() == [2, 1, 3]


@pytest.mark.parametrize("tau", [1e-8, 1e-2])
def test_server_adam_against_torch(tau: float) -> None:
    """Also with rows that never get a gradient after the first step: they drift by momentum."""
    parameters = {"table": random(6, 3), "bias": random(1, 4), "scalar": random(1, 1)}
    moments = adam_moments(parameters)
    modules = {name: torch.nn.Parameter(value.clone()) for name, value in parameters.items()}
    optimiser = torch.optim.Adam(modules.values(), lr=1e-3, eps=tau)
    for step in range(5):
        gradients = {name: random(*value.shape) for name, value in parameters.items()}
        if step > 0:
            gradients["table"][2:] = 0
        parameters, moments = server_adam(parameters, gradients, moments, 1e-3, tau)
        for name, module in modules.items():
            module.grad = gradients[name].clone()
        optimiser.step()
    for name, module in modules.items():
        torch.testing.assert_close(parameters[name], module.detach(), rtol=1e-12, atol=1e-14)
    assert float(moments["step"]) == 5
    assert set(moments) == {"step", *(f"{name}.{moment}" for name in modules for moment in "mv")}


def test_server_adam_leaves_its_inputs() -> None:
    parameters = {"a": random(3, 2), "b": random(1, 4)}
    gradients = {name: random(*value.shape) for name, value in parameters.items()}
    moments = adam_moments(parameters)
    _, moments = server_adam(parameters, gradients, moments, 0.1)
    groups = (parameters, gradients, moments)
    before = [{name: value.clone() for name, value in group.items()} for group in groups]
    server_adam(parameters, gradients, moments, 0.1)
    for old, new in zip(before, groups, strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)
