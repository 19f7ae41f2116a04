from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.builders import random_split
from torch.nn.functional import binary_cross_entropy_with_logits

import fedrecgel as fr
from fedrecgel.data.federation import Federation
from fedrecgel.draws import Draws
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.theory.bound import generalisation_bound
from fedrecgel.theory.generalisation import generalisation_of

SPLIT = random_split()
TINY: dict[str, Any] = {"rounds": 3, "gmf_dim": 4, "mlp_dim": 8, "fraction": 0.5, "run": {"dtype": "float64"}}


def test_losses_against_one_client_at_a_time() -> None:
    result = fr.train("fedrecgel", SPLIT, **TINY)
    method = result.config.method.build()
    assert isinstance(method, FedNCF)
    shared, federation = method.backbone.prepare(result.shared), Federation(SPLIT, dtype=torch.float64)
    train, heldout = [], []
    for client in range(SPLIT.n_users):
        user = result.clients["user"][client : client + 1]
        batch = federation.batch(torch.tensor([client]), 3, Draws(0))
        logits = method.backbone.scores(shared, user, batch.items)
        train.append(float(binary_cross_entropy_with_logits(logits, batch.labels)))
        items = torch.tensor([[int(SPLIT.test[client]), *map(int, SPLIT.candidates[client, :4])]])
        logits = method.backbone.scores(shared, user, items)
        heldout.append(float(binary_cross_entropy_with_logits(logits, torch.tensor([[1.0, 0, 0, 0, 0]]).double())))
    found = generalisation_of(result, SPLIT)
    assert found is not None
    assert found.train_loss == pytest.approx(sum(train) / len(train), rel=1e-12)
    assert found.heldout_loss == pytest.approx(sum(heldout) / len(heldout), rel=1e-12)
    assert found.gap == pytest.approx(found.heldout_loss - found.train_loss)
    assert found.bound == generalisation_bound(result, SPLIT).value
    assert found.vacuous


def test_no_bound_without_radii_and_nothing_for_other_losses() -> None:
    plain = generalisation_of(fr.train("fedncf", SPLIT, **TINY), SPLIT)
    assert plain is not None
    assert plain.bound is None
    assert generalisation_of(fr.train("popularity", SPLIT, rounds=1), SPLIT) is None
