"""The comparison computes the same thing: else its time would mean nothing."""

from __future__ import annotations

import torch
from tests.builders import random_split

from fedrecgel.bench.measure import Contender, flops_per_sample
from fedrecgel.bench.naive import NaiveEngine
from fedrecgel.data.federation import Federation
from fedrecgel.draws import Draws
from fedrecgel.methods.fedrecgel import FedRecGEL

SPLIT = random_split(n_users=12, n_items=150)


def test_naive_and_batched_rounds_agree() -> None:
    method = FedRecGEL(gmf_dim=8, mlp_dim=16, rho_co=0.1, rho_ur=0.1)
    ours = Contender(method, Federation(SPLIT), workers=1)
    cohort = torch.arange(SPLIT.n_users)
    naive = NaiveEngine(method, Federation(SPLIT), ours.server.shared)
    users = ours.store.read(cohort)["user"].clone()
    wanted = ours.engine.train(ours.server, cohort, 0).inbox.mean()
    batch = Federation(SPLIT).batch(cohort, 0, Draws(0))
    given = [
        (items[own], labels[own]) for items, labels, own in zip(batch.items, batch.labels, batch.mask, strict=True)
    ]
    gmf, mlp, first, *_ = naive.train(cohort, users, given)
    for name, found in (("item_gmf", gmf), ("item_mlp", mlp), ("w1_item", first[:, 16:]), ("w1_user", first[:, :16])):
        torch.testing.assert_close(found, wanted[name], rtol=1e-3, atol=1e-6)


def test_naive_samples_as_ours() -> None:
    """Every positive with four distinct items outside the training items."""
    federation = Federation(SPLIT)
    method = FedRecGEL(gmf_dim=8, mlp_dim=16)
    naive = NaiveEngine(method, federation, Contender(method, federation, workers=1).server.shared)
    own = set(SPLIT.train.items[SPLIT.train.ptr[3] : SPLIT.train.ptr[4]].tolist())
    items, labels = naive._sample(3)
    rows = items.view(-1, 5)
    assert set(rows[:, 0].tolist()) == own
    assert labels.view(-1, 5).tolist() == [[1, 0, 0, 0, 0]] * len(own)
    assert all(len(set(row) - own) == 4 for row in rows[:, 1:].tolist())


def test_work_is_counted_in_units_of_the_first_layer() -> None:
    """Ten products of 128 x 128 per merged example, as derived in docs/methods/fedrecgel.md."""
    assert flops_per_sample(FedRecGEL()) == 10 * 2 * 128 * 128
