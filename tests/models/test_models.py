"""Every model against one client at a time, with torch's own autograd and a plain perturbation, in float64."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from fedrecgel.errors import ConfigError
from fedrecgel.models import find_model
from fedrecgel.models.base import Model
from fedrecgel.models.gradients import LocalLoss
from fedrecgel.tensors import Factors, Tensors

N_ITEMS, CLIENTS, ROWS = 12, 4, 6


class Case:
    """Large random tensors and four clients, the last without any weight."""

    def __init__(self, name: str) -> None:
        generator = torch.Generator().manual_seed(1)
        self.name, self.model = name, find_model(name)(gmf_dim=3, mlp_dim=5)
        initial = self.model.init_shared(N_ITEMS, np.random.default_rng(0))
        self.shared = {key: torch.randn(v.shape, generator=generator).double() for key, v in initial.items()}
        self.user = torch.randn(CLIENTS, self.model.user_dim, generator=generator).double()
        rows = torch.stack([torch.randperm(N_ITEMS, generator=generator)[:ROWS] for _ in range(CLIENTS)])
        labels = (torch.rand(CLIENTS, ROWS, generator=generator) < 0.5).double()
        weights = torch.rand(CLIENTS, ROWS, generator=generator).double()
        weights[1, 3:] = 0  # padding
        weights[3] = 0
        self.loss = LocalLoss(rows, weights > 0, labels, weights)

    def logits(self, shared: Tensors, user: Tensor, items: Tensor) -> Tensor:
        """The textbook formula for one client."""
        if self.name == "mf":
            bias = shared["item_bias"][items, 0] + user[-1] + shared["bias"][0, 0]
            return shared["item"][items] @ user[:-1] + bias
        if self.name == "mlp":
            both = torch.cat([user.expand(len(items), -1), shared["item"][items]], dim=1)
            hidden = torch.relu(both @ shared["w1"] + shared["b1"])
            hidden = torch.relu(hidden @ shared["w2"] + shared["b2"])
            return (hidden @ shared["out"] + shared["out_bias"])[:, 0]
        u1, u2 = user[:3], user[3:]
        hidden = shared["item_mlp"][items] @ shared["w1_item"].T + u2 @ shared["w1_user"].T + shared["b1"]
        hidden = torch.relu(torch.relu(hidden) @ shared["w2"].T + shared["b2"])
        hidden = torch.relu(hidden @ shared["w3"].T + shared["b3"])
        gmf = (u1 * shared["item_gmf"][items]) @ shared["out_gmf"]
        return (gmf + hidden @ shared["out_mlp"] + shared["out_bias"])[:, 0]

    def differentiate(self, client: int, shared: Tensors, user: Tensor) -> tuple[Tensor, Tensors, Tensor]:
        """Loss, gradient of the shared tensors and of the user vector."""
        leaves = {name: value.clone().requires_grad_() for name, value in shared.items()}
        own = user.clone().requires_grad_()
        logits = self.logits(leaves, own, self.loss.rows[client])
        loss = (self.loss.weights[client] * cross_entropy(logits, self.loss.labels[client], reduction="none")).sum()
        *gradients, slope = torch.autograd.grad(loss, [*leaves.values(), own])
        return loss.detach(), dict(zip(leaves, gradients, strict=True)), slope

    def to_worst_items(self, g_co: Tensors, rho_co: float) -> Tensors:
        """Every item moves by ρ_co along its own gradient over all tables, the network along its own."""
        moved = {name: value.clone() for name, value in self.shared.items()}
        for item in range(N_ITEMS):
            norm = torch.cat([g_co[name][item] for name in self.model.tables]).norm() + 1e-12
            for name in self.model.tables:
                moved[name][item] += rho_co * g_co[name][item] / norm
        norm = torch.cat([g_co[name].flatten() for name in self.model.network]).norm() + 1e-12
        for name in self.model.network:
            moved[name] += rho_co * g_co[name] / norm
        return moved

    def sam(self, client: int, rho_ur: float, rho_co: float) -> tuple[Tensor, Tensors, Tensor]:
        """Loss, g_co and g_ur."""
        user = self.user[client]
        loss, g_co, g_ur = self.differentiate(client, self.shared, user)
        if rho_co > 0:
            norm = torch.cat([gradient.flatten() for gradient in g_co.values()]).norm() + 1e-12
            moved = {name: value + rho_co * g_co[name] / norm for name, value in self.shared.items()}
            g_co = self.differentiate(client, moved, user)[1]
        if rho_ur > 0:
            g_ur = self.differentiate(client, self.shared, user + rho_ur * g_ur / (g_ur.norm() + 1e-12))[2]
        return loss, g_co, g_ur


@pytest.fixture(params=["neumf", "mf", "mlp"])
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


def whole(case: Case, client: int, network: dict[str, Tensor | Factors], rows: Tensors) -> Tensors:
    """What a client sends, tables dense."""
    sent = {name: (v.each() if isinstance(v, Factors) else v)[client] for name, v in network.items()}
    for name, value in rows.items():
        sent[name] = torch.zeros_like(case.shared[name]).index_add(0, case.loss.rows[client], value[client])
    return sent


@pytest.mark.parametrize(("rho_ur", "rho_co"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.2, 2.0)])
def test_sharpness_aware_gradients(case: Case, rho_ur: float, rho_co: float) -> None:
    found = case.model.gradients(case.model.prepare(case.shared), case.user, case.loss, rho_ur, rho_co)
    for client in range(CLIENTS):
        loss, g_co, g_ur = case.sam(client, rho_ur, rho_co)
        close(found.loss[client], loss)
        close(found.user[client], g_ur)
        sent = whole(case, client, dict(found.network), found.rows)  # type: ignore[arg-type]
        assert sent.keys() == case.shared.keys() == {*case.model.tables, *case.model.network}
        for name, gradient in g_co.items():
            close(sent[name], gradient)


def test_sharpness_aware_gradients_with_a_ball_for_each_item(case: Case) -> None:
    shared = case.model.prepare(case.shared)
    found = case.model.gradients(shared, case.user, case.loss, 0.3, 0.4, balls=case.model.tables)
    for client in range(CLIENTS):
        loss, g_co, _ = case.differentiate(client, case.shared, case.user[client])
        moved = case.to_worst_items(g_co, 0.4)
        close(found.loss[client], loss)
        close(found.user[client], case.sam(client, 0.3, 0.0)[2])
        sent = whole(case, client, dict(found.network), found.rows)  # type: ignore[arg-type]
        for name, gradient in case.differentiate(client, moved, case.user[client])[1].items():
            close(sent[name], gradient)


@pytest.mark.parametrize("of", ["user", "shared"])
def test_a_part_is_the_same_alone(case: Case, of: Literal["user", "shared"]) -> None:
    shared = case.model.prepare(case.shared)
    both = case.model.gradients(shared, case.user, case.loss, 0.3, 0.4)
    part = case.model.gradients(shared, case.user, case.loss, 0.3, 0.4, of=of)
    assert torch.equal(part.loss, both.loss)
    if of == "user":
        assert torch.equal(part.user, both.user)
        assert not part.network
        assert not part.rows
    else:
        assert not len(part.user)
        assert all(torch.equal(part.rows[name], value) for name, value in both.rows.items())


def test_scores(case: Case) -> None:
    items = torch.arange(N_ITEMS).expand(CLIENTS, -1)
    scores = case.model.scores(case.model.prepare(case.shared), case.user, items)
    for client in range(CLIENTS):
        close(scores[client], case.logits(case.shared, case.user[client], items[client]))


def test_what_a_model_writes_out_is_what_autograd_finds() -> None:
    """NeuMF's gradients by hand against the default of every model, which knows nothing of φ."""
    case = Case("neumf")
    plain = Model.point(case.model, case.shared, case.loss.rows, case.user)
    wanted = Model.differentiate(case.model, plain, case.loss)
    found = case.model.gradients(case.model.prepare(case.shared), case.user, case.loss)
    close(found.user, wanted.user())
    network, rows = wanted.sent()
    for client in range(CLIENTS):
        mine = whole(case, client, dict(found.network), found.rows)  # type: ignore[arg-type]
        for name, value in whole(case, client, dict(network), rows).items():  # type: ignore[arg-type]
            close(mine[name], value)


def test_inputs_stay_as_they_are(case: Case) -> None:
    shared = case.model.prepare(case.shared)
    before = {name: value.clone() for name, value in shared.items()}
    case.model.gradients(shared, case.user, case.loss, 0.3, 0.4)
    case.model.scores(shared, case.user, case.loss.rows)
    assert all(torch.equal(value, before[name]) for name, value in shared.items())


def test_an_unknown_model_names_its_nearest_neighbour() -> None:
    with pytest.raises(ConfigError, match=r"Unknown method.model 'neumff'. Did you mean 'neumf'\?"):
        find_model("neumff")
