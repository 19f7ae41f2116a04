from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.models.private_network import PrivateNetwork
from fedrecgel.tensors import Tensors


def sequential(network: PrivateNetwork, own: Tensors, client: int) -> torch.nn.Sequential:
    """One client's network of modules."""
    modules: list[torch.nn.Module] = []
    for layer in range(len(network.hidden) + 1):
        weight, bias = own[f"w{layer}"][client], own[f"b{layer}"][client]
        linear = torch.nn.Linear(*weight.shape).to(weight.dtype)
        linear.load_state_dict({"weight": weight.T, "bias": bias})
        modules += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1])


@settings(max_examples=25, deadline=None)
@given(
    clients=st.integers(1, 3),
    items=st.integers(1, 6),
    dim=st.integers(1, 4),
    hidden=st.lists(st.integers(1, 5), max_size=3),
    seed=st.integers(0, 999),
)
def test_loss_and_gradient_are_those_of_modules(
    clients: int, items: int, dim: int, hidden: list[int], seed: int
) -> None:
    network, generator = PrivateNetwork(dim, tuple(hidden)), np.random.default_rng(seed)
    starts = [network.start(generator, generator) for _ in range(clients)]
    own = {name: torch.from_numpy(np.stack([start[name] for start in starts])) for name in network.names}
    own["rows"] = torch.from_numpy(generator.standard_normal((clients, items, dim)))
    labels = torch.from_numpy(generator.integers(0, 2, (clients, items)).astype(np.float64))
    weights = torch.from_numpy(generator.random((clients, items)))
    losses, gradient = network.gradient(own, labels, weights, saturating=False)
    for client in range(clients):
        modules = sequential(network, own, client)
        user, rows = (own[name][client].clone().requires_grad_() for name in ("user", "rows"))
        logits = modules(torch.cat([user.expand(items, -1), rows], dim=1)).squeeze(1)
        assert torch.allclose(network.logits(own, own["rows"])[client], logits, rtol=0, atol=1e-12)
        loss = binary_cross_entropy_with_logits(logits, labels[client], weights[client], reduction="sum")
        found = torch.autograd.grad(loss, [user, *modules.parameters(), rows])
        assert torch.allclose(losses[client], loss, rtol=0, atol=1e-12)
        for name, slope in zip([*network.names, "rows"], found, strict=True):
            wanted = slope.T if name.startswith("w") else slope
            assert torch.allclose(gradient[name][client], wanted, rtol=0, atol=1e-12), name
