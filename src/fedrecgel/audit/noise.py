"""Tests of differential privacy by trial: canaries, and the size of the noise.

A canary is a client that sends as much as it may, in one direction. Whoever can tell rounds with it from rounds without
bounds ε from below; where that bound exceeds what the accountant claims, something is broken. Few trials see gross
errors only, such as missing limits or noise that is divided by the cohort; the size of the noise is tested apart, where
one release of many numbers shows an error of two percent.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import beta, chi2

from fedrecgel.channels.base import Channel, RoundSetup
from fedrecgel.channels.clipping import TOGETHER, Limits
from fedrecgel.channels.dp import Noisy
from fedrecgel.draws import Draws
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.messages import Need, Upload

TRIALS = 1500
"""Numbers with a canary, and as many without."""
NUMBERS = 60_000
"""In the release whose noise is measured."""
TOO_LONG = 100.0
"""How many times its limit the canary tries to send."""
CONFIDENCE = 0.95


def release(channel: Channel, values: torch.Tensor, round: int, name: str) -> npt.NDArray[np.float64]:
    """What comes out of a channel with noise for these clients [C, n], through both of its halves."""
    n = values.shape[1]
    nowhere = torch.zeros(len(values), 0, dtype=torch.int64)
    upload = Upload(torch.arange(len(values)), {name: values}, {}, nowhere, torch.ones(len(values)).to(values))
    setup = RoundSetup(round, upload.ids, n, Need.SUM)
    inbox = channel.server().collect([channel.device(Draws(0)).seal(upload, setup)], setup)
    found: npt.NDArray[np.float64] = inbox.total()[name].double().numpy()
    return found


def tensor_of(channel: Noisy) -> str:
    """A tensor that is clipped together with others, or that has a limit of its own."""
    own = sorted(set(channel.limits.largest) - {TOGETHER})
    return own[0] if own else TOGETHER


def epsilon_lower_bound(channel: Noisy, trials: int = TRIALS) -> float:
    """What canaries show ε of one round to be at least, with 95% confidence; the canary takes part for certain.

    All trials are one release: every canary has a number of its own, and as many numbers have none. The threshold is
    chosen on the first half of the trials, the bound is taken on the second.
    """
    name = tensor_of(channel)
    limit = channel.limits.largest[name]
    canaries = torch.zeros(trials, 2 * trials, dtype=torch.float64)
    canaries.diagonal().fill_(TOO_LONG * limit if np.isfinite(limit) else TOO_LONG)
    present, without = np.split(release(channel, canaries, 10**6 + 1, name), 2)
    half = trials // 2
    candidates = np.quantile(np.concatenate([without[:half], present[:half]]), np.linspace(0.02, 0.98, 49))
    best = max(candidates, key=lambda at: _bound(without[:half], present[:half], float(at)))
    return max(0.0, _bound(without[half:], present[half:], float(best)))


def _bound(without: npt.NDArray[np.float64], present: npt.NDArray[np.float64], threshold: float) -> float:
    """log(P(seen | present) / P(seen | absent)) at least, by the intervals of Clopper and Pearson."""
    n, alpha = len(without), (1 - CONFIDENCE) / 2
    hits, alarms = int((present > threshold).sum()), int((without > threshold).sum())
    low = float(beta.ppf(alpha, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - alpha, alarms + 1, n - alarms)) if alarms < n else 1.0
    return log(low / high) if low > 0 else 0.0


def noise_p(channel: Noisy, sigma_of_limit: float) -> float:
    """How likely noise this far from the stated size is, by chance: a small number means it has another size.

    Args:
        channel: as the run uses it.
        sigma_of_limit: the stated deviation, by the limit.

    Raises:
        PrivacyError: there is no noise.
    """
    name = tensor_of(channel)
    sigma = sigma_of_limit * channel.limits.largest[name]
    if sigma == 0:
        raise PrivacyError("Without noise there is nothing to measure.")
    nothing = torch.zeros(1, NUMBERS, dtype=torch.float64)
    square = float(np.square(release(channel, nothing, 10**6, name) / sigma).sum())
    below = float(chi2.cdf(square, NUMBERS))
    return 2 * min(below, 1 - below)


def still(channel: Noisy) -> Noisy:
    """A copy whose limits do not move while it is tested, so that the run's own stay as they are."""
    twin = type(channel)(replace(channel.settings, adaptive=False))
    twin.restore(channel.keep())
    twin.limits = Limits(dict(channel.limits.largest))
    return twin
