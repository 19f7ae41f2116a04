"""What a curious server can work out from what a node draws; each attack is shown to work where there is no secret."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WORD = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def predict_laplace(entry: float, at: int, check: float, check_at: int, size: int) -> npt.NDArray[np.float64] | None:
    """All noise of a client from two entries that hold nothing else, by running SplitMix64 backwards.

    The first gives 53 of 64 bits of one output; each of the 2,048 ways to complete them gives a state, and the second
    entry tells which is right. None if no state fits.
    """
    chance = 0.5 + 0.5 * np.sign(entry) * (1 - np.exp(-abs(entry)))
    top = round(chance * 2**53)
    for near in (top, top - 1, top + 1, top - 2, top + 2):  # rounding of the logarithm
        for low in range(2048):
            stream = (_unmix((near << 11 | low) % WORD) - GOLDEN * (int(at) + 1)) % WORD
            if abs(float(_laplace(stream, np.array([check_at]))[0]) - check) < 1e-9:
                return _laplace(stream, np.arange(size))
    return None


def _laplace(stream: int, counters: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """As the generator of simulations draws it from a client's stream."""
    x = np.uint64(stream) + np.uint64(GOLDEN) * (counters.astype(np.uint64) + np.uint64(1))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
    x = x ^ (x >> np.uint64(31))
    chance = (x >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5
    noise: npt.NDArray[np.float64] = -np.sign(chance) * np.log1p(-2 * np.abs(chance))
    return noise


def _unmix(x: int) -> int:
    """The inverse of SplitMix64's finaliser."""
    x = _unshift(x, 31) * pow(SECOND, -1, WORD) % WORD
    x = _unshift(x, 27) * pow(FIRST, -1, WORD) % WORD
    return _unshift(x, 30)


def _unshift(x: int, by: int) -> int:
    """The y with y ^ (y >> by) = x."""
    found = x
    for _ in range(64 // by):
        found = x ^ (found >> by)
    return found
