"""Budgets: what runs may spend, what they keep for later, and what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.channels.noisy import INF, SPLIT, plan
from tests.engine.flower.inprocess import same

import fedrecgel as fr
from fedrecgel.channels.accounting import spent_epsilon
from fedrecgel.channels.budget import Budget, DpSettings
from fedrecgel.channels.dp import BIT_NOISE, _update_noise
from fedrecgel.engine.checkpoint import Checkpoint
from fedrecgel.errors import ConfigError
from fedrecgel.runs.config import from_dict
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.train import train_config
from fedrecgel.runs.training import Interrupted


def test_the_run_stops_before_its_budget_is_spent(tmp_path: Path) -> None:
    options: dict[str, Any] = {"dim": 4, "fraction": 0.5, "run": {"channel": "dp"}}
    dp = {"epsilon": 20.0, "noise_multiplier": 1.0}
    found = fr.train("fedmf", SPLIT, rounds=50, out=tmp_path / "run", **options, dp=dp)
    privacy, done = found.summary["privacy"], len(found.history)
    assert 1 < done < 50
    assert privacy["epsilon"] <= 20 < spent_epsilon(1.0, 0.5, done + 1, 1e-5)
    assert privacy["sampling"] == {"rule": "poisson", "rate": 0.5}
    assert (privacy["delta"], privacy["noise_multiplier"], privacy["clip"]) == (1e-5, 1.0, 1.0)
    assert "HR@10" in found.history[-1]
    assert any(f"stopped after round {done} of 50" in text for text in found.summary["warnings"])
    assert fr.open(tmp_path / "run").metrics == found.metrics
    enough = fr.train("fedmf", SPLIT, rounds=6, **options, dp={"epsilon": 3.0})
    assert len(enough.history) == 6
    assert 2.9 < enough.summary["privacy"]["epsilon"] <= 3.0


def test_resuming_repeats_noise_and_cohorts_and_keeps_the_budget(tmp_path: Path) -> None:
    config = from_dict(
        {
            "data": {"name": "tiny", "min_interactions": 5},
            "split": {},
            "method": {"name": "fedmf", "dim": 4, "fraction": 0.5},
            "run": {"rounds": 4, "channel": "dp"},
            "checkpoint": {"every": 1},
            "dp": {"epsilon": 90.0, "adaptive": True, "clip": 0.1, "noise_multiplier": 0.5},
        }
    )
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Interrupted):
        train_config(config, SPLIT, folder, should_stop=lambda: True)
    kept = Checkpoint.read(folder.checkpoint)
    assert kept.channel["secret"].shape == (32,)
    assert float(kept.channel["noise_multiplier"]) == 0.5
    state = folder.checkpoint.read_bytes()
    found = []
    for _ in range(2):
        folder.summary.unlink(missing_ok=True)
        folder.checkpoint.write_bytes(state)
        found.append(train_config(config, SPLIT, folder, resume=True))
    same(found[0].shared, found[1].shared)
    assert found[0].summary["privacy"]["clip"] != 0.1
    secret = kept.channel["secret"].numpy().tobytes()
    for file in (folder.config, folder.summary, folder.metrics):
        assert secret.hex() not in file.read_text()
        assert json.dumps(list(secret)) not in file.read_text()


def test_a_run_killed_before_its_first_checkpoint_has_its_secret(tmp_path: Path) -> None:
    config = from_dict(
        {
            "data": {"name": "tiny", "min_interactions": 5},
            "method": {"name": "fedmf", "dim": 4, "fraction": 0.5},
            "run": {"rounds": 2, "channel": "dp"},
        }
    )
    folder, seen = RunFolder(tmp_path / "run"), []

    def kill(line: dict[str, Any]) -> None:
        seen.append(line["loss"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_config(config, SPLIT, folder, watch=kill)
    found = train_config(config, SPLIT, folder, resume=True)
    assert found.history[0]["loss"] == seen[0], "the same clients were drawn again"


def test_the_seed_repeats_a_run_and_the_summary_says_what_that_means() -> None:
    options: dict[str, Any] = {"rounds": 2, "dim": 4, "run": {"channel": "dp"}}
    first, second = (fr.train("fedmf", SPLIT, **options, dp={"noise": "seed"}) for _ in range(2))
    same(first.shared, second.shared)
    assert any("whoever knows it" in text for text in first.summary["warnings"])
    fresh = fr.train("fedmf", SPLIT, **options)
    assert not torch.equal(fresh.shared["items"], first.shared["items"])


def test_adapting_is_paid_for() -> None:
    """The noise on sums grows so that sums and counts together cost what was stated."""
    budget = Budget(DpSettings(noise_multiplier=1.0, epsilon=INF), amplified=True)
    budget.begin(plan(n_clients=200))
    z, bits = _update_noise(budget, 2), BIT_NOISE * 200
    assert z > 1
    assert z**-2 + 2 * (0.5 / bits) ** 2 == pytest.approx(1.0)
    budget.begin(plan(n_clients=4))
    with pytest.raises(ConfigError, match="cohort larger than 4 clients"):
        _update_noise(budget, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dp": {"clips": {"item": 1.0}}}, "Unknown tensor 'item' in dp.clips. Did you mean 'items'"),
        ({"dp": {"clip": INF}}, "dp.clip and dp.clips should be finite"),
        ({"dp": {"noise_multiplier": 0.3, "epsilon": 1.0}}, "should allow one round at least"),
        ({"run": {"channel": "local-dp"}, "dp": {"adaptive": True}}, "Limits in channel 'local-dp' are fixed"),
        ({"evaluation": {"reference": "on"}}, "does not cover popularity beside a run"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fr.train("fedmf", SPLIT, **{"rounds": 1, "dim": 4, "run": {"channel": "dp"}, **settings})


def test_a_method_whose_rounds_do_not_fit_is_refused_before_it_starts() -> None:
    with pytest.raises(ConfigError, match=r"'spectra' needs \d+ rounds .* allows \d"):
        fr.train("spectra", SPLIT, run={"channel": "dp"}, dp={"noise_multiplier": 1.0})
