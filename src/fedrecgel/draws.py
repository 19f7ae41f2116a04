"""Randomness as a function of (seed, purpose, round, client), and of a device's secret where there is one.

A generator that advances would give a client other negatives when it is trained in another batch, on another
machine, or after a restart. Here every number is a hash of what it is for, so batching, sharding and resuming
change nothing and there is no generator state to save.

A simulator hashes by SplitMix64, which is fast and hides nothing: one number gives the whole stream. A device draws
from SHAKE-256 keyed by its secret: neither the seed nor numbers that became known tell anything about the others.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256, shake_256
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fedrecgel.errors import PrivacyError

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
    """All randomness of a run, as one party knows it."""

    seed: int
    """Known to everybody who takes part."""
    secret: bytes = b""
    """Known to one device only; empty on a server and in a simulator, whose runs can be repeated."""
    contents: Mapping[int, bytes] = field(default_factory=dict)
    """For clients whose numbers hide something, a digest of it."""

    @property
    def public(self) -> Draws:
        """Draws from the seed alone, for what all devices have in common: anyone who takes part can compute them."""
        return Draws(self.seed)

    @property
    def own(self) -> Draws:
        """For a device's half of a channel, which shares no number with the method where there is a secret."""
        return Draws(self.seed, hmac.digest(self.secret, b"own", "sha256")) if self.secret else self

    def hiding(self, clients: Integers, content: npt.NDArray[Any], scale: float) -> Draws:
        """Draws for noise of this scale on top of each client's content: the same only for the same of both.

        So a round that is repeated repeats its noise, but noise never comes back under another content, where one
        answer could be subtracted from the other.
        """
        if not self.secret:
            return self
        digests = (sha256(f"{scale!r}/".encode() + np.ascontiguousarray(own).tobytes()).digest() for own in content)
        return replace(self, contents=dict(zip(clients.tolist(), digests, strict=True)))

    def part(self, name: str) -> Draws:
        """Draws of a part of a whole, which share no number with those of other parts."""
        return replace(self, seed=self._key(f"part/{name}", 0))

    def key(self, purpose: str, round: int, participant: int) -> bytes:
        """32 bytes that only the holder of the secret can compute; from the seed alone where there is none."""
        about = f"{self.seed}/{purpose}/{round}/{participant}"
        return hmac.digest(self.secret, about.encode(), "sha256")

    def _key(self, purpose: str, round: int) -> int:
        return int.from_bytes(sha256(f"{self.seed}/{purpose}/{round}".encode()).digest()[:8], "little")

    def uniform(self, purpose: str, round: int, clients: Integers, counters: Integers) -> npt.NDArray[np.float64]:
        """Uniform in [0, 1), one for each (client, counter) after broadcasting; counters begin near 0."""
        clients, counters = np.asarray(clients), np.asarray(counters)
        bits = (self._keyed if self.secret else self._mixed)(purpose, round, clients, counters)
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _mixed(self, purpose: str, round: int, clients: Integers, counters: Integers) -> npt.NDArray[np.uint64]:
        """64 bits each, by SplitMix64."""
        streams = self.streams(purpose, round, clients)
        return _mix(streams + _GOLDEN * (counters.astype(np.uint64) + np.uint64(1)))

    def streams(self, purpose: str, round: int, clients: Integers) -> npt.NDArray[np.uint64]:
        """Where each client's numbers begin without a secret: all it takes to draw the same ones elsewhere."""
        start = np.asarray([self._key(purpose, round)], dtype=np.uint64)
        return _mix(start + _GOLDEN * (clients.astype(np.uint64) + np.uint64(1)))

    def _keyed(self, purpose: str, round: int, clients: Integers, counters: Integers) -> npt.NDArray[np.uint64]:
        """64 bits each: the words of one SHAKE-256 stream per client, as long as its largest counter asks for."""
        who, which = np.unique(clients, return_inverse=True)
        which = which.reshape(clients.shape)
        lengths = np.zeros(len(who), dtype=np.int64)
        np.maximum.at(lengths, *np.broadcast_arrays(which, counters + 1))
        key = hmac.digest(self.secret, f"stream/{self.seed}/{purpose}/{round}".encode(), "sha256")
        stream = b"".join(
            shake_256(key + client.to_bytes(8, "little") + self.contents.get(client, b"")).digest(8 * length)
            for client, length in zip(who.tolist(), lengths.tolist(), strict=True)
        )
        starts = np.cumsum(lengths) - lengths
        bits: npt.NDArray[np.uint64] = np.frombuffer(stream, dtype="<u8")[starts[which] + counters]
        return bits

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
        """A generator for what the server draws, and through `public` for what devices have in common with it.

        Raises:
            PrivacyError: a device with a secret asks, without saying whether the outcome may be known.
        """
        return np.random.default_rng(_unclear(purpose) if self.secret else self._key(purpose, round))


def _unclear(purpose: str) -> NoReturn:
    raise PrivacyError(
        f"On a device, what all have in common should come from draws.public, and what is its own from uniform, "
        f"normal or laplace. Found draws.generator('{purpose}')."
    )
