"""The leak of the published negative rule: devices that learn nothing from each other find the held-out item.

A held-out item that is never drawn as a negative is the only one not pushed down, so a personal item table that lives
long enough puts it first. Drawn like any other item, it stays where chance puts it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.builders import engine_of, problem_of

from fedrecgel.data.federation import SamplingSettings
from fedrecgel.data.load import load
from fedrecgel.data.split import Split
from fedrecgel.engine.local import LocalSettings
from fedrecgel.evaluation.metrics import metrics
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedrap import FedRAP
from fedrecgel.methods.pfedrec import PFedRec

CHANCE = 0.1
"""HR@10 of a random order of 100 candidates."""


@pytest.fixture(scope="module")
def filmtrust(raw_data: Path) -> Split:
    return load("filmtrust", data_dir=raw_data).split()


def hit_rates(method: Method, split: Split, *, leaky: bool) -> list[float]:
    """HR@10 after 0, 10 and 20 rounds of every 16th client: nothing is shared, so the others change nothing."""
    sampling = SamplingSettings(negatives=30, exclude_heldout_from_negatives=leaky)  # few rounds reach most items
    local = LocalSettings(chunk_examples=20_000, workers=1)
    engine = engine_of(method, split, dtype=torch.float32, sampling=sampling, local=local)
    server = method.init_server(problem_of(split, torch.float32), engine.draws)
    clients = engine.population()[::16]
    found = []
    for t in range(21):
        if t % 10 == 0:
            ranks = engine.ranks(server, "test", "candidates")
            found.append(metrics(Ranks(ranks.above[clients], ranks.tied[clients]))["HR@10"])
        server = method.server_update(server, engine.train(server, clients, t).inbox, t, engine.draws)
    return found


@pytest.mark.parametrize(
    "method",
    [
        PFedRec(dim=8, alone=True),
        FedRAP(dim=8, alone=True, epochs=1, lr_items=5000.0, lambda_=1e-3, mu=1e-3, weight_decay=1e-6),
    ],
    ids=["pfedrec", "fedrap"],
)
def test_only_the_leaky_rule_finds_the_held_out_item(filmtrust: Split, method: Method) -> None:
    leaky, honest = (hit_rates(method, filmtrust, leaky=rule) for rule in (True, False))
    assert leaky[0] == honest[0] == pytest.approx(CHANCE, abs=0.08)
    assert leaky == sorted(leaky)
    assert leaky[-1] > 0.8
    assert max(honest) < 2 * CHANCE
