"""What rounds of Gaussian noise cost in (ε, δ): pure functions around a maintained accountant.

Two federations are neighbours if one has a user more than the other. A round adds noise of z times the largest
contribution of a user to a sum over clients, of whom each takes part with probability q, by a draw of its own that
nobody sees. Rounds are composed by privacy loss distributions, rounded up.
"""

from __future__ import annotations

import math
from functools import lru_cache

from fedrecgel.errors import ConfigError

INTERVAL = 2e-3
"""Grid of the privacy loss: rounded up, so that a wider one costs tightness only, at most 0.1% of ε here."""
TOLERANCE = 1e-3
"""Relative, of a noise multiplier that is searched for."""
LEAST_NOISE = 0.2
MOST_NOISE = 1e4
"""A target that needs more is refused."""


@lru_cache(maxsize=256)
def spent_epsilon(noise_multiplier: float, rate: float, rounds: int, delta: float) -> float:
    """The ε of so many rounds: infinite without noise, 0 without rounds.

    Args:
        noise_multiplier: z, standard deviation of the noise by the largest contribution of one user.
        rate: q, the probability with which each user takes part; 1 where who takes part is known.
        rounds: how many.
        delta: the probability δ with which the promise may fail.

    Raises:
        ConfigError: the accountant is not installed.
    """
    if rounds == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    if rate == 1:
        return _gaussian_epsilon(math.sqrt(rounds) / noise_multiplier, delta)
    try:
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
        from dp_accounting.pld import PLDAccountant
    except ImportError as error:
        raise ConfigError(
            "Channels with differential privacy need the package dp-accounting. Install it with the extra 'dp': "
            "pip install 'fedrecgel[dp]'."
        ) from error
    accountant = PLDAccountant(value_discretization_interval=INTERVAL)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier)), rounds)
    return float(accountant.get_epsilon(delta))


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Exact for the Gaussian mechanism (Balle and Wang, ICML 2018).

    Args:
        mu: what a user changes by the deviation of the noise; √rounds times that of one round.
        delta: δ.
    """
    from scipy.optimize import brentq  # a second that runs without noise save
    from scipy.special import log_ndtr, ndtr  # what scipy.stats.norm calls

    def excess(epsilon: float) -> float:
        tail = math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))
        return float(ndtr(mu / 2 - epsilon / mu)) - tail - delta

    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1  # the classical bound
    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, high, xtol=1e-9))


@lru_cache(maxsize=64)
def needed_noise(epsilon: float, rate: float, rounds: int, delta: float) -> float:
    """The smallest noise multiplier, to 0.1%, at which so many rounds cost at most ε; 0 where ε is infinite.

    Raises:
        ConfigError: no reasonable noise is enough.
    """
    if math.isinf(epsilon):
        return 0.0
    low, high = 0.0, 1.0
    while spent_epsilon(high, rate, rounds, delta) > epsilon:
        low, high = high, 2 * high
        if high > MOST_NOISE:
            raise ConfigError(
                f"dp.epsilon should be reachable. Found {epsilon:g} at delta = {delta:g} for {rounds} rounds, which "
                f"needs noise above {MOST_NOISE:g} times a user's contribution: raise it, or ask for fewer rounds."
            )
    while high - low > TOLERANCE * high:
        middle = (low + high) / 2
        # So little noise that loss distributions grow long is never searched for: it protects nobody.
        costs = math.inf if rate < 1 and middle < LEAST_NOISE else spent_epsilon(middle, rate, rounds, delta)
        low, high = (middle, high) if costs > epsilon else (low, middle)
    return high


def allowed_rounds(noise_multiplier: float, rate: float, rounds: int, epsilon: float, delta: float) -> int:
    """How many of these rounds cost at most ε."""
    if math.isinf(epsilon) or spent_epsilon(noise_multiplier, rate, rounds, delta) <= epsilon:
        return rounds
    low, high = 0, rounds
    while high - low > 1:
        middle = (low + high) // 2
        fits = spent_epsilon(noise_multiplier, rate, middle, delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low
