"""Tests of noise: correct code passes, broken code is seen."""

from __future__ import annotations

from typing import Any

import pytest

from fedrecgel.audit.noise import epsilon_lower_bound, noise_p, still
from fedrecgel.channels import dp
from fedrecgel.channels.accounting import spent_epsilon
from fedrecgel.channels.base import Plan
from fedrecgel.channels.budget import DpSettings
from fedrecgel.channels.clipping import Limits
from fedrecgel.channels.dp import Dp
from fedrecgel.errors import PrivacyError

PLAN = Plan(100, 1.0, 1, frozenset({"w"}), seed=0)
CLAIMED = spent_epsilon(1.0, 1.0, 1, 1e-5)


def channel_of(**settings: Any) -> Dp:
    """With noise that is the same in every run of the tests: bounds from it are random."""
    usual: dict[str, Any] = {"noise_multiplier": 1.0, "epsilon": float("inf"), "clip": 0.5, "noise": "seed"}
    channel = Dp(DpSettings(**(usual | settings)))
    channel.begin(PLAN)
    return channel


def test_correct_code_passes_both() -> None:
    channel = channel_of()
    assert 0.5 < epsilon_lower_bound(channel, 600) < CLAIMED
    assert noise_p(channel, 1.0) > 1e-3


def test_noise_of_another_size_is_seen() -> None:
    assert noise_p(channel_of(), 1.03) < 1e-3
    with pytest.raises(PrivacyError, match="nothing to measure"):
        noise_p(channel_of(noise_multiplier=0.0), 0.0)


def test_missing_limits_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp, "shorten", lambda upload, norms, limits: upload)
    assert epsilon_lower_bound(channel_of(), 1500) > CLAIMED


def test_noise_divided_by_the_cohort_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Limits.spread
    monkeypatch.setattr(Limits, "spread", lambda self, names, z: usual(self, names, z / 10))
    assert epsilon_lower_bound(channel_of(), 1500) > CLAIMED


def test_a_run_is_not_moved_by_being_tested() -> None:
    channel = channel_of(adaptive=True)
    twin = still(channel)
    epsilon_lower_bound(twin, 20)
    assert channel.limits.largest == {"together": 0.5}
    assert twin.keep()["secret"].tolist() == channel.keep()["secret"].tolist()
