"""Shares of noise add up to what a sum needs, also where a third of them is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.channels.uploads import N_ITEMS

from fedrecgel.channels.accounting import spent_epsilon
from fedrecgel.channels.base import Plan, RoundSetup
from fedrecgel.channels.budget import DpSettings
from fedrecgel.channels.noise_shares import NoiseShares
from fedrecgel.draws import Draws
from fedrecgel.methods.messages import Need, Upload

CLIENTS, SIZE = 30, 400


def sum_of(present: int, round: int, **settings: Any) -> np.ndarray[Any, Any]:
    """What is left in the sum of clients that send zeros."""
    channel = NoiseShares(DpSettings(**{"noise_multiplier": 2.0, "epsilon": float("inf"), "clip": 0.5, **settings}))
    channel.begin(Plan(CLIENTS, 1.0, 1, frozenset({"w"}), seed=0))
    zeros = torch.zeros(present, SIZE, dtype=torch.float64)
    nowhere = torch.zeros(present, 0, dtype=torch.int64)
    upload = Upload(torch.arange(present), {"w": zeros}, {}, nowhere, torch.ones(present).double())
    setup = RoundSetup(round, torch.arange(CLIENTS), N_ITEMS, Need.SUM)
    sealed = channel.device(Draws(0)).seal(upload, setup)
    found: np.ndarray[Any, Any] = channel.server().collect([sealed], setup).total()["w"].numpy()
    return found


def test_the_sum_has_the_stated_noise_when_as_many_are_missing_as_may_be() -> None:
    sums = np.concatenate([sum_of(20, t, dropout=1 / 3) for t in range(10)])
    assert sums.std() == pytest.approx(2.0 * 0.5, rel=0.06)
    everybody = np.concatenate([sum_of(30, t, dropout=1 / 3) for t in range(10)])
    assert everybody.std() == pytest.approx(2.0 * 0.5 * 1.5**0.5, rel=0.06)
    assert np.concatenate([sum_of(30, t, dropout=0.0) for t in range(10)]).std() == pytest.approx(1.0, rel=0.06)


def test_sampling_buys_nothing_from_a_server_that_knows_the_cohort() -> None:
    channel = NoiseShares(DpSettings(noise_multiplier=3.0, epsilon=float("inf")))
    channel.begin(Plan(CLIENTS, 0.1, 5, frozenset({"w"}), seed=0))
    assert channel.account(5)["epsilon"] == pytest.approx(spent_epsilon(3.0, 1.0, 5, 1e-5))
    assert channel.account(5)["sampling"] == {"rule": "known to the server"}
    assert channel.draw(torch.arange(CLIENTS), 0) is None


def test_a_share_is_the_same_for_the_same_content_only() -> None:
    channel = NoiseShares(DpSettings(noise_multiplier=1.0, epsilon=float("inf")))
    channel.begin(Plan(CLIENTS, 1.0, 1, frozenset({"w"}), seed=0))
    setup = RoundSetup(0, torch.arange(CLIENTS), N_ITEMS, Need.SUM)
    nowhere = torch.zeros(2, 0, dtype=torch.int64)
    one = Upload(torch.arange(2), {"w": torch.zeros(2, 3).double()}, {}, nowhere, torch.ones(2).double())
    device = channel.device(Draws(0))
    first, again = (device.seal(one, setup).dense["w"] for _ in range(2))
    assert torch.equal(first, again)  # type: ignore[arg-type]
    other = device.seal(replace(one, dense={"w": torch.full((2, 3), 1e-3).double()}), setup).dense["w"]
    assert not torch.allclose(first, other, atol=1e-2)  # type: ignore[arg-type]


def test_more_rounds_pay_for_what_was_measured_at_the_earlier_end() -> None:
    settings = DpSettings(noise_multiplier=3.0, epsilon=float("inf"))
    first, longer = NoiseShares(settings), NoiseShares(settings)
    first.begin(plan := Plan(CLIENTS, 1.0, 5, frozenset({"w"}), seed=0, on_nodes=True, measured=lambda rounds: 2))
    longer.begin(replace(plan, rounds=8))
    longer.restore(first.keep())
    assert longer.account(8)["epsilon"] == pytest.approx(spent_epsilon(3.0, 1.0, 8 + 2 + 2, 1e-5))
    again = NoiseShares(settings)
    again.begin(replace(plan, rounds=8))
    again.restore(longer.keep())
    assert again.account(8)["epsilon"] == longer.account(8)["epsilon"]
