"""Noisy uploads under masks: without noise they are those of secagg, with noise the budget is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedrecgel as fr
from fedrecgel.runs.result import Result

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")


def train(channel: str, **sections: Any) -> Result:
    data = fr.Interactions.from_frame({"user": [u for u in range(12) for _ in range(5)], "item": _ITEMS})
    split = data.split(candidates=5)
    settings: dict[str, Any] = {
        "run": {"channel": channel},
        "secagg": {"masks": "run", "min_clients": 10},
        "fraction": 1.0,
        **sections,
    }
    if channel == "plain":
        del settings["secagg"]
    return fr.train("fedmf", split, rounds=2, seed=0, **settings)


_ITEMS = [(7 * user + 3 * place) % 30 for user in range(12) for place in range(5)]


def test_without_noise_and_limit_it_is_plain_up_to_rounding() -> None:
    silent = {"noise_multiplier": 0.0, "clip": float("inf"), "epsilon": float("inf")}
    hidden, plain = train("secagg+dp", dp=silent), train("plain")
    for name, value in plain.shared.items():
        torch.testing.assert_close(hidden.shared[name], value, rtol=0, atol=1e-4)


def test_noise_is_accounted_for_and_reaches_the_model() -> None:
    noisy = train("secagg+dp", dp={"epsilon": 8.0, "clip": 0.5})
    about = noisy.summary["privacy"]
    assert about["channel"] == "secagg+dp"
    assert 0 < about["epsilon"] <= 8.0
    assert about["masks"] == "run"
    exact = train("plain")
    assert any(not torch.allclose(noisy.shared[name], value, atol=1e-2) for name, value in exact.shared.items())
