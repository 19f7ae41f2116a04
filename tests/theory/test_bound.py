"""The bound of a trained run, against one client at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.builders import random_split
from tests.oracles import fedrecgel as oracle

import fedrecgel as fr
from fedrecgel.data.federation import Federation
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.numerics.pac_bayes import admissible_sigma, lemma2
from fedrecgel.theory.bound import generalisation_bound

SPLIT = random_split()
OPTIONS: dict[str, Any] = {"rounds": 3, "gmf_dim": 4, "mlp_dim": 8, "rho_co": 0.3, "rho_ur": 0.2, "fraction": 0.5}


def test_against_one_client_at_a_time() -> None:
    result = fr.train("fedrecgel", SPLIT, **OPTIONS, run={"dtype": "float64"})
    method = result.config.method.build()
    assert isinstance(method, FedRecGEL)
    method = replace(method, reduction="mean")
    federation, worst = Federation(SPLIT, dtype=torch.float64), []
    for client in range(SPLIT.n_users):
        batch = federation.batch(torch.tensor([client]), OPTIONS["rounds"], Draws(0))
        items, labels = batch.items[0], batch.labels[0]
        model = oracle.NeuMFModule(result.shared, method.gmf_dim)
        user = result.clients["user"][client].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(oracle.local_loss(method, model, user, items, labels), user)
        oracle.step_to_worst([user], [gradient], method.rho_ur)
        parameters: list[torch.Tensor] = list(model.parameters())
        shared = torch.autograd.grad(oracle.local_loss(method, model, user, items, labels), parameters)
        oracle.step_to_worst(parameters, list(shared), method.rho_co)
        worst.append(oracle.local_loss(method, model, user, items, labels).item())

    n_shared, n_private = sum(value.numel() for value in result.shared.values()), 12
    n_records = 5 * len(SPLIT.train.items)
    norms = [
        sum(float(v.square().sum()) for v in result.shared.values()) + float(u @ u) for u in result.clients["user"]
    ]
    sizes = {"n_shared": n_shared, "n_private": n_private, "n_records": n_records}
    wanted = lemma2(
        sum(worst) / len(worst),
        sum(norms) / len(norms),
        n_parameters=n_shared + n_private,
        n_records=n_records,
        sigma=admissible_sigma(0.3, 0.2, **sizes),
        gamma=0.05,
        loss_bound=max(worst),
    )
    found = generalisation_bound(result, SPLIT)
    assert found.worst_case_loss == pytest.approx(wanted.worst_case_loss, rel=1e-10)
    assert found.value == pytest.approx(wanted.value, rel=1e-10)
    assert found.loss_bound == pytest.approx(max(worst), rel=1e-10)
    assert found.vacuous
    assert generalisation_bound(result, SPLIT, loss_bound=100.0).loss_bound == 100


def test_where_it_does_not_hold() -> None:
    with pytest.raises(ConfigError, match="two positive radii"):
        generalisation_bound(fr.train("fedrecgel", SPLIT, **{**OPTIONS, "rho_ur": 0.0}), SPLIT)
    with pytest.raises(ConfigError, match="two positive radii"):
        generalisation_bound(fr.train("fedncf", SPLIT, rounds=1, gmf_dim=4, mlp_dim=8), SPLIT)
    with pytest.raises(ConfigError, match="trained on"):
        generalisation_bound(fr.train("fedrecgel", SPLIT, **OPTIONS), random_split(seed=1))
