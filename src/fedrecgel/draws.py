"""Randomness as a function of (seed, purpose, round, client).

A generator that advances would give a client other negatives when it is trained in another batch, on another
machine, or after a restart. Here every number is a hash of what it is for, so batching, sharding and resuming
change nothing and there is no generator state to save.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64 (Steele, Lea and Flood, 2014)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

Integers = npt.NDArray[np.int64]


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The SplitMix64 finaliser: every input bit changes half of the output bits."""
    x = (x ^ (x >> np.uint64(30))) * _MULTIPLIERS[0]
    x = (x ^ (x >> np.uint64(27))) * _MULTIPLIERS[1]
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class Draws:
    """All randomness of a run."""

    seed: int
    secret: str = ""
    """Known to one device only; empty in a simulator, whose runs can be repeated."""

    @property
    def hidden(self) -> Draws:
        """Draws for noise that hides something: anyone who knows the run's seed could subtract noise drawn from it."""
        if not self.secret:
            return self
        return Draws(int.from_bytes(sha256(f"{self.seed}/{self.secret}".encode()).digest()[:8], "little"))

    @property
    def own(self) -> Draws:
        """For a device's half of a channel: all that it draws is hidden, and `key` stays one of its own."""
        return Draws(self.hidden.seed, self.secret)

    def part(self, name: str) -> Draws:
        """Draws of a part of a whole, which share no number with those of other parts."""
        return Draws(self._key(f"part/{name}", 0), self.secret)

    def key(self, purpose: str, round: int, participant: int) -> bytes:
        """32 bytes that only the holder of the secret can compute; from the seed alone where there is none."""
        about = f"{self.seed}/{purpose}/{round}/{participant}"
        return hmac.digest(self.secret.encode(), about.encode(), "sha256")

    def _key(self, purpose: str, round: int) -> int:
        return int.from_bytes(sha256(f"{self.seed}/{purpose}/{round}".encode()).digest()[:8], "little")

    def uniform(self, purpose: str, round: int, clients: Integers, counters: Integers) -> npt.NDArray[np.float64]:
        """Uniform in [0, 1), one for each (client, counter) after broadcasting."""
        start = np.asarray([self._key(purpose, round)], dtype=np.uint64)
        stream = _mix(start + _GOLDEN * (np.asarray(clients).astype(np.uint64) + np.uint64(1)))
        bits = _mix(stream + _GOLDEN * (np.asarray(counters).astype(np.uint64) + np.uint64(1)))
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, purpose: str, round: int, clients: Integers, size: int) -> npt.NDArray[np.float64]:
        """Standard normal numbers [C, size], by Box and Muller's transform."""
        counters = np.arange(size)[None, :]
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform(purpose + "/radius", round, clients[:, None], counters)))
        angle = 2.0 * np.pi * self.uniform(purpose + "/angle", round, clients[:, None], counters)
        normal: npt.NDArray[np.float64] = radius * np.cos(angle)
        return normal

    def laplace(self, purpose: str, round: int, clients: Integers, size: int) -> npt.NDArray[np.float64]:
        """Laplace noise of scale 1, [C, size], by inverting its distribution function."""
        chance = self.uniform(purpose, round, clients[:, None], np.arange(size)[None, :]) - 0.5
        noise: npt.NDArray[np.float64] = -np.sign(chance) * np.log1p(-2 * np.abs(chance))
        return noise

    def generator(self, purpose: str, round: int = 0) -> np.random.Generator:
        """A generator for what the server draws: initial tensors, cohorts."""
        return np.random.default_rng(self._key(purpose, round))
