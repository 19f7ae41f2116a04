from __future__ import annotations

import pytest
import torch
from tests.models.test_neumf import CLIENTS, MODELS, Case

from fedrecgel.models.neumf import NeuMF
from fedrecgel.models.neumf_copies import copies_gradients, copies_scores
from fedrecgel.tensors import Tensors


def copies_of(case: Case) -> Tensors:
    """Every client's copy of the shared tensors, its own rows of the tables, and its vector."""
    tables = {name: case.shared[name][case.rows] for name in ("item_gmf", "item_mlp")}
    network = {name: value.expand(CLIENTS, -1, -1) for name, value in case.shared.items() if name not in tables}
    return {**tables, **network, "user": case.user}


@pytest.mark.parametrize("model", MODELS)
def test_equal_copies_score_as_the_shared_model(model: NeuMF) -> None:
    case = Case(model)
    torch.testing.assert_close(copies_scores(model, copies_of(case)), model.scores(case.view, case.user))


@pytest.mark.parametrize("model", MODELS)
def test_gradients_against_one_client_at_a_time(model: NeuMF) -> None:
    case = Case(model)
    copies = copies_of(case)
    other = {name: 1.2 * value for name, value in case.shared.items()}
    for name, value in other.items():  # one of them has moved on
        copies[name] = copies[name].clone()
        copies[name][2] = value[case.rows[2]] if name.startswith("item_") else value
    loss, gradients = copies_gradients(model, copies, case.labels, case.weights)
    for client in range(CLIENTS):
        value, shared, user = case.autograd(client, other if client == 2 else case.shared, case.user[client])
        torch.testing.assert_close(loss[client], value)
        torch.testing.assert_close(gradients["user"][client], user)
        for name, wanted in shared.items():
            rows = wanted[case.rows[client]] if name.startswith("item_") else wanted
            torch.testing.assert_close(gradients[name][client], rows)
