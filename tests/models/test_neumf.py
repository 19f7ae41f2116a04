from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody uses

from fedrecgel.models.base import Model
from fedrecgel.models.gradients import LocalLoss, Slopes, perturb_in_place
from fedrecgel.models.neumf import NeuMF
from fedrecgel.tensors import Factors, Tensors, client_norm

MODELS = [NeuMF(gmf_dim=3, mlp_dim=5, hidden=(8, 6, 4)), NeuMF(gmf_dim=1, mlp_dim=1, hidden=(3, 2, 1))]
N_ITEMS, CLIENTS, ROWS = 12, 4, 6


def plain_logits(model: NeuMF, shared: Tensors, user: Tensor, items: Tensor) -> Tensor:
    """The textbook model for one client: concatenate, go up the tower, concatenate, one output neuron."""
    u1, u2 = user[: model.gmf_dim], user[model.gmf_dim :]
    v1, v2 = shared["item_gmf"][items], shared["item_mlp"][items]
    h = torch.cat([u2.expand(len(items), -1), v2], dim=1)
    weights = [torch.cat([shared["w1_user"], shared["w1_item"]], dim=1)]
    weights += [shared[f"w{layer}"] for layer in (2, 3)]
    for layer, weight in enumerate(weights, start=1):
        h = torch.relu(F.linear(h, weight, shared[f"b{layer}"][0]))
    output = torch.cat([shared["out_gmf"], shared["out_mlp"]]).T
    return F.linear(torch.cat([u1 * v1, h], dim=1), output, shared["out_bias"][0])[:, 0]


class Case:
    """A model with large random tensors (biases too) and four clients, the last without any weight."""

    def __init__(self, model: NeuMF) -> None:
        generator = torch.Generator().manual_seed(1)
        initial = model.init_shared(N_ITEMS, np.random.default_rng(0))
        self.model = model
        self.shared = {
            name: torch.randn(*value.shape, generator=generator, dtype=torch.float64) for name, value in initial.items()
        }
        self.user = torch.randn(CLIENTS, model.user_dim, generator=generator, dtype=torch.float64)
        self.rows = torch.stack([torch.randperm(N_ITEMS, generator=generator)[:ROWS] for _ in range(CLIENTS)])
        self.labels = (torch.rand(CLIENTS, ROWS, generator=generator) < 0.5).double()
        self.weights = torch.rand(CLIENTS, ROWS, generator=generator).double()
        self.weights[1, 3:] = 0  # padding
        self.weights[3] = 0
        self.loss = LocalLoss(self.rows, self.weights > 0, self.labels, self.weights)
        self.point = model.point(model.prepare(self.shared), self.rows, self.user)

    def slopes(self) -> Slopes:
        return self.model.differentiate(self.point, self.loss)

    def autograd(self, client: int, shared: Tensors, user: Tensor) -> tuple[Tensor, Tensors, Tensor]:
        """Loss, gradients of the shared tensors and of the user vector, by torch."""
        leaves = {name: value.clone().requires_grad_() for name, value in shared.items()}
        own = user.clone().requires_grad_()
        logits = plain_logits(self.model, leaves, own, self.rows[client])
        losses = F.binary_cross_entropy_with_logits(logits, self.labels[client], reduction="none")
        loss = (self.weights[client] * losses).sum()
        gradients = torch.autograd.grad(loss, [*leaves.values(), own])
        return loss.detach(), dict(zip(leaves, gradients[:-1], strict=True)), gradients[-1]


@pytest.fixture(params=MODELS, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


def sent(case: Case, slopes: Slopes, client: int) -> Tensors:
    """One client's upload as the dense gradient of every shared tensor."""
    network, rows = slopes.sent()
    dense = {name: torch.as_tensor(v.each() if isinstance(v, Factors) else v)[client] for name, v in network.items()}
    for name, value in rows.items():
        dense[name] = torch.zeros_like(case.shared[name]).index_add(0, case.rows[client], value[client])
    return dense


def test_scores(case: Case) -> None:
    scores = case.model.scores(case.model.prepare(case.shared), case.user, case.rows)
    copies = Model.scores(case.model, case.shared | {"item_half": torch.empty(N_ITEMS, 0)}, case.user, case.rows)
    for client in range(CLIENTS):
        wanted = plain_logits(case.model, case.shared, case.user[client], case.rows[client])
        close(scores[client], wanted)
        close(copies[client], wanted)


def test_losses_and_gradients_against_autograd(case: Case) -> None:
    slopes = case.slopes()
    for client in range(CLIENTS):
        loss, gradients, own = case.autograd(client, case.shared, case.user[client])
        close(slopes.loss[client], loss)
        close(slopes.user()[client], own)
        found = sent(case, slopes, client)
        assert set(found) == set(case.shared)
        for name, gradient in gradients.items():
            close(found[name], gradient)


def test_the_norm_in_seen_coordinates_is_the_norm_of_the_full_gradient(case: Case) -> None:
    """W1_user and b1 are replaced by φ; the stretched coordinate keeps their part of the norm."""
    norms = client_norm(case.slopes().seen())
    for client in range(CLIENTS):
        _, gradients, _ = case.autograd(client, case.shared, case.user[client])
        close(norms[client], torch.cat([gradient.flatten() for gradient in gradients.values()]).norm())
    assert norms[3] == 0


@pytest.mark.parametrize("rho", [0.3, 5.0])
def test_a_perturbed_point_is_the_model_with_perturbed_tensors(case: Case, rho: float) -> None:
    point = case.point.with_shared(perturb_in_place(case.point.shared, case.slopes().seen(), rho))
    worse = case.model.differentiate(point, case.loss)
    for client in range(CLIENTS):
        _, gradients, _ = case.autograd(client, case.shared, case.user[client])
        norm = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
        moved = {name: value + rho * gradients[name] / (norm + 1e-12) for name, value in case.shared.items()}
        loss, expected, _ = case.autograd(client, moved, case.user[client])
        close(worse.loss[client], loss)
        for name, gradient in expected.items():
            close(sent(case, worse, client)[name], gradient)


def test_another_user_keeps_the_rest_of_the_point(case: Case) -> None:
    other = case.user.flip(0) * 2
    slopes = case.model.differentiate(case.model.with_user(case.point, other), case.loss)
    for client in range(CLIENTS):
        loss, _, own = case.autograd(client, case.shared, other[client])
        close(slopes.loss[client], loss)
        close(slopes.user()[client], own)


def test_initial_tensors() -> None:
    model = NeuMF()
    shared = model.init_shared(3000, np.random.default_rng(0))
    assert sum(value.size for name, value in shared.items() if not name.startswith("item_")) == 43_232 + 65
    for name in ("item_gmf", "item_mlp"):
        assert shared[name].std() == pytest.approx(0.01, rel=0.02)
    assert all(not shared[name].any() for name in ("b1", "b2", "b3", "out_bias"))
    bounds = {"w1_user": 6 / 384, "w1_item": 6 / 384, "w2": 6 / 192, "w3": 6 / 96, "out_gmf": 3 / 64, "out_mlp": 3 / 64}
    for name, square in bounds.items():
        assert np.abs(shared[name]).max() == pytest.approx(square**0.5, rel=0.1)
        assert np.abs(shared[name]).max() <= square**0.5
