"""Channels with noise: its size, its secret, its budget, and what is left without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest
from tests.builders import TINY
from tests.channels.noisy import INF, SPLIT, begun, plan, through, uploads
from tests.channels.reach import reachable
from tests.channels.uploads import N_ITEMS, by_loop, random_upload, setup_of
from tests.engine.flower.inprocess import config_of, same, served

import fedrecgel as fr
from fedrecgel.channels.accounting import spent_epsilon
from fedrecgel.channels.budget import Budget, DpSettings
from fedrecgel.channels.clipping import TOGETHER, apart, group_norms
from fedrecgel.channels.dp import GRID_BITS, Dp, LocalDp, add_noise
from fedrecgel.channels.sums import each_of
from fedrecgel.draws import Draws
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.messages import Need

DOUBLE = {"dtype": "float64", "channel": "dp"}
FREE = {"clip": INF, "epsilon": INF}
"""No limit, no noise."""


KNOWN = [-0.0822595, -0.0857053, 0.1308181]
"""Of a secret of 32 zeros, in round 7: another order of draws or another generator would give other numbers."""


def test_without_noise_and_limits_sums_are_exact() -> None:
    wanted, _ = by_loop(uploads())
    found = through(begun(clip=INF), uploads())
    for name, value in wanted.items():
        torch.testing.assert_close(found.total()[name], value)
    assert found.weight == 5
    with pytest.raises(PrivacyError):
        found.each()


@pytest.mark.parametrize("method", ["fedrecgel", "fedmf", "popularity", "spectra"])
def test_zero_noise_and_infinite_clip_is_plain(method: str) -> None:
    """All clients take part: Poisson sampling at rate 1 draws everyone."""
    options: dict[str, Any] = {"fedrecgel": {**TINY, "fraction": 1.0}, "fedmf": {"dim": 4, "fraction": 1.0}}.get(
        method, {}
    )
    options = {**options, "run": {"dtype": "float64"}}
    rounds = 2 if method.startswith("fed") else None
    plain = fr.train(method, SPLIT, rounds=rounds, **options)
    free = fr.train(method, SPLIT, rounds=rounds, **{**options, "run": DOUBLE}, dp=FREE)
    same(free.shared, plain.shared, 1e-9)
    assert free.metrics == pytest.approx(plain.metrics)
    assert free.summary["privacy"]["epsilon"] is None
    assert free.summary["privacy"]["noise_multiplier"] == 0


def chi_square_p(values: np.ndarray[Any, Any], sigma: float) -> float:
    """How likely a sum of squares this far from its mean is."""
    found = float(np.square(values / sigma).sum())
    below = float(chi2.cdf(found, len(values)))
    return 2 * min(below, 1 - below)


def test_noise_on_a_sum_is_gaussian_of_the_stated_size() -> None:
    n = 60_000
    ids = torch.zeros(1, dtype=torch.int64)
    sums = torch.full((1, n), 3.0, dtype=torch.float64)
    noise = (add_noise(sums, 0.7, Draws(0, b"secret"), "table", 0, ids) - sums)[0].numpy()
    assert chi_square_p(noise, 0.7) > 1e-4
    assert chi_square_p(noise, 0.7 * 1.02) < 1e-4, "two percent less would be noticed"
    assert kstest(noise / 0.7, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 5 / n**0.5


def test_noise_has_a_known_answer() -> None:
    ids = torch.zeros(1, dtype=torch.int64)
    found = add_noise(torch.zeros(1, 3, dtype=torch.float64), 1.0, Draws(0, bytes(32)), "w", 7, ids)
    torch.testing.assert_close(found[0], torch.tensor(KNOWN, dtype=torch.float64), rtol=0, atol=1e-6)


def test_results_lie_on_one_grid_whatever_they_hide() -> None:
    ids = torch.zeros(1, dtype=torch.int64)
    for value in (1 / 3, 1e-9, 123.456):
        sums = torch.full((1, 50), value, dtype=torch.float64)
        found = add_noise(sums, 0.7, Draws(0, b"secret"), "table", 0, ids) * 2.0 ** (GRID_BITS + 1)
        torch.testing.assert_close(found, found.round(), rtol=0, atol=0)


def test_the_noise_of_the_server_has_the_size_that_its_limits_ask_for() -> None:
    """Two groups in a round: √2 times each limit; the limit of all tensors together binds them together."""
    channel, found = begun(noise_multiplier=2.0, clip=3.0, clips={"table": 0.5}), []
    for t in range(150):
        sums = through(channel, uploads(), t)
        found.append(torch.cat([sums.sums[name].flatten() for name in ("matrix", "bias", "table")]).numpy())
    exact = through(begun(clip=3.0, clips={"table": 0.5}, noise_multiplier=0.0), uploads())
    wanted = torch.cat([exact.sums[name].flatten() for name in ("matrix", "bias", "table")]).numpy()
    noise = np.stack(found) - wanted
    assert chi_square_p(noise[:, :10].ravel(), 2.0 * 3.0 * 2**0.5) > 1e-4
    assert chi_square_p(noise[:, 10:].ravel(), 2.0 * 0.5 * 2**0.5) > 1e-4


def test_a_repeated_round_repeats_its_noise_and_another_sum_has_other_noise() -> None:
    channel = begun(noise_multiplier=1.0, clip=1.0)
    first, again = (through(channel, uploads()) for _ in range(2))
    same(first.sums, again.sums)
    less = through(channel, uploads(4))
    free = [through(begun(noise_multiplier=0.0, clip=1.0), sent) for sent in (uploads(), uploads(4))]
    noise = [noisy.sums["table"] - exact.sums["table"] for noisy, exact in zip((first, less), free, strict=True)]
    assert (noise[0] - noise[1]).abs().min() > 1e-6
    other = begun(noise_multiplier=1.0, clip=1.0)
    assert not torch.equal(through(other, uploads()).sums["table"], first.sums["table"]), "its secret is its own"


def test_clients_are_drawn_one_by_one_from_the_secret() -> None:
    channel = Dp(DpSettings())
    channel.begin(plan(n_clients=3000, fraction=0.2, rounds=40))
    everyone = torch.arange(3000)
    cohorts = [channel.draw(everyone, t) for t in range(40)]
    taking_part = torch.stack([torch.isin(everyone, cohort) for cohort in cohorts]).double()
    sizes = taking_part.sum(1)
    assert abs(sizes.mean() - 600) < 5 * (3000 * 0.16 / 40) ** 0.5
    assert 0.4 < sizes.var() / (3000 * 0.16) < 2, "binomial sizes: a fixed size would have no variance"
    assert (taking_part.mean(0).var() / (0.16 / 40)) == pytest.approx(1, abs=0.15)
    torch.testing.assert_close(channel.draw(everyone, 3), cohorts[3])
    twin = Dp(DpSettings())
    twin.restore(channel.keep())
    twin.begin(plan(n_clients=3000, fraction=0.2, rounds=40))
    torch.testing.assert_close(twin.draw(everyone, 3), cohorts[3])
    other = Dp(DpSettings())
    other.begin(plan(n_clients=3000, fraction=0.2, rounds=40))
    assert not torch.equal(other.draw(everyone, 3), cohorts[3])


def test_a_run_without_anybody_releases_noise() -> None:
    found = fr.train(
        "fedmf",
        SPLIT,
        rounds=3,
        dim=4,
        server_lr=1.0,
        fraction=0.001,
        run={"channel": "dp"},
        dp={"noise_multiplier": 1.0, "noise": "seed"},  # a fresh secret would draw somebody once in 25 times
    )
    assert [line["clients"] for line in found.history] == [0, 0, 0]
    assert found.shared["items"].abs().max() > 1, "noise, divided by nothing"


def test_adaptive_limits_find_the_quantile() -> None:
    channel = Dp(DpSettings(epsilon=INF, adaptive=True, clip=50.0, quantile=0.5, adapt_rate=0.5))
    channel.begin(plan(n_clients=40))
    generator = torch.Generator().manual_seed(0)
    sent = [random_upload(generator, 40, 3, torch.ones(40).double())]
    for t in range(40):
        found = through(channel, sent, t)
        assert set(found.sums) == {"matrix", "bias", "number", "table"}
    norms = group_norms(apart(sent[0], N_ITEMS), channel.limits)[TOGETHER]
    assert float(norms.quantile(0.35)) < channel.limits.largest[TOGETHER] < float(norms.quantile(0.65))


def test_local_noise_is_on_every_upload_and_every_row() -> None:
    channel = LocalDp(DpSettings(noise_multiplier=1.5, clip=0.5, epsilon=INF))
    channel.begin(plan())
    setup, noise = setup_of(Need.EACH), []
    free = LocalDp(DpSettings(noise_multiplier=0.0, clip=0.5, epsilon=INF))
    for t in range(60):
        now = replace(setup, round=t)
        noisy, exact = (one.device(Draws(0)).seal(uploads()[0], now) for one in (channel, free))
        noise.append((noisy.rows["table"] - exact.rows["table"]).numpy())
        assert noisy.at.shape == (5, N_ITEMS), "all rows, touched or not"
        assert isinstance(each_of(noisy.dense["matrix"]), torch.Tensor)
    values = np.stack(noise)
    assert chi_square_p(values.ravel(), 2 * 1.5 * 0.5) > 1e-4
    assert abs(np.corrcoef(values[:, 0].ravel(), values[:, 1].ravel())[0, 1]) < 0.15, "each client has its own"
    assert channel.account(3)["epsilon"] == pytest.approx(spent_epsilon(1.5, 1.0, 3, 1e-5))


def test_local_noise_serves_methods_that_compare_clients() -> None:
    found = fr.train("gpfedrec", SPLIT, rounds=1, dim=4, run={"channel": "local-dp"}, dp={"epsilon": 1000.0})
    assert found.summary["privacy"]["sampling"] == {"rule": "known to the server"}
    assert 900 < found.summary["privacy"]["epsilon"] <= 1000
    with pytest.raises(PrivacyError, match="'gpfedrec' reads uploads one by one"):
        fr.train("gpfedrec", SPLIT, rounds=1, run={"channel": "dp"})


def test_clients_that_count_by_their_examples_are_refused() -> None:
    with pytest.raises(PrivacyError, match="every client should weigh 1"):
        fr.train("fedncf", SPLIT, rounds=1, weighting="examples", run={"channel": "dp"}, dp=FREE, **TINY)


def test_devices_do_not_see_the_secret() -> None:
    channel = begun(noise_multiplier=1.0)
    assert not any(isinstance(value, Budget | Draws) for value in reachable(channel.device(Draws(0))))
    assert any(isinstance(value, Budget) for value in reachable(channel.server()))


def test_nodes_clip_and_the_server_adds_noise(tmp_path: Path) -> None:
    dp = {"noise_multiplier": 0.0, "epsilon": INF, "clip": 0.01}
    config = config_of("fedrecgel", run={"channel": "dp"}, dp=dp, method={"fraction": 1.0})
    here = fr.train("fedrecgel", SPLIT, **{**TINY, "fraction": 1.0}, rounds=3, dp=dp, run=DOUBLE)
    there = served(config, SPLIT, tmp_path / "nodes")
    same(there.shared, here.shared, 1e-6)
    noisy = served(config_of("fedrecgel", run={"channel": "dp"}), SPLIT, tmp_path / "noisy")
    assert 7.9 < noisy.summary["privacy"]["epsilon"] <= 8.0
