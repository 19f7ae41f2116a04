"""BFV: integers encrypted in blocks, which a server without the key can add and multiply by public integers.

Brakerski, CRYPTO 2012; Fan and Vercauteren, https://eprint.iacr.org/2012/144; here through TenSEAL and Microsoft SEAL.

A ciphertext holds 8,192 integers modulo t. Two things may go wrong, and both would go unnoticed: an integer that leaves
±t/2 wraps around, and noise that outgrows q/2t garbles everything. So every sealed tensor carries a public bound on
either, worst case and independent of the data, and an operation that could pass one is refused.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedrecgel.channels.fixedpoint import as_ratio
from fedrecgel.errors import ConfigError
from fedrecgel.tensors import Sealed

RING = 8192
"""Degree of the polynomials, and integers per ciphertext."""
MODULUS_BITS = (60, 60, 60)
"""Primes of the ciphertext modulus; the last one serves encryption only, so q has 120 bits. 180 bits in all are below
the 218 that the Homomorphic Encryption Standard allows for this ring at 128 bits of security; SEAL refuses more."""
PLAIN_MODULUS = 288230376150876161
"""t: the largest prime of 58 bits that is 1 modulo 2 · RING, which packing integers needs."""
LARGEST_INTEGER = PLAIN_MODULUS // 2
FRESH_NOISE = 1 << 19
"""Noise of a fresh ciphertext is at most 19.2 (2 RING + 1) + 1/2: errors end at 19.2, keys and masks are -1, 0 or 1."""
LARGEST_NOISE = (1 << 119) // (4 * PLAIN_MODULUS)
"""Half of the q/2t that decryption takes, as a margin for its own rounding."""


def tenseal() -> Any:
    """The library, imported when it is first used.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module("tenseal")
    except ImportError as error:
        raise ConfigError(
            "Channel 'bfv' needs the library TenSEAL, which is not installed. "
            'Install the extra `crypto`: pip install -c constraints.txt -e ".[crypto]".'
        ) from error


class Ciphertexts(Sealed):
    """A tensor, or one per client, as ciphertexts of integers: what they stand for is integer · factor / 2^exponent.

    Nothing in here can decrypt: the context of the parts has a public key only.
    """

    parts: tuple[Any, ...]
    """Ciphertexts in order; with a client axis, as many for each client."""
    exponent: int
    bound: int
    """No integer is larger in magnitude."""
    noise: int
    """No coefficient of the noise is larger in magnitude."""
    factor: float
    """A public factor that is still to be applied: several in a row are rounded only once."""

    @staticmethod
    def __new__(
        cls,
        like: Tensor,
        shape: tuple[int, ...],
        parts: tuple[Any, ...],
        exponent: int,
        bound: int,
        noise: int = FRESH_NOISE,
        factor: float = 1.0,
    ) -> Ciphertexts:
        """A tensor without values, of the type and device of `like`."""
        return Tensor._make_wrapper_subclass(cls, shape, dtype=like.dtype, device=like.device)

    def __init__(
        self,
        like: Tensor,
        shape: tuple[int, ...],
        parts: tuple[Any, ...],
        exponent: int,
        bound: int,
        noise: int = FRESH_NOISE,
        factor: float = 1.0,
    ) -> None:
        check_room(bound, noise)
        self.parts, self.exponent, self.bound, self.noise, self.factor = parts, exponent, bound, noise, factor

    @property
    def n_bytes(self) -> int:
        """What the ciphertexts weigh as they are sent."""
        return sum(len(part.serialize()) for part in self.parts)

    def plus(self, other: Ciphertexts) -> Ciphertexts:
        """The sum; factors are applied, and the coarser of the two is written with the exponent of the finer."""
        left, right = self, other
        if (left.factor, left.exponent) != (right.factor, right.exponent):
            left, right = left.settled(), right.settled()
            exponent = max(left.exponent, right.exponent)
            left, right = left._raised(exponent), right._raised(exponent)
        check_room(left.bound + right.bound, left.noise + right.noise)
        alike = left.factor == right.factor  # else one is 1 and the other -1
        parts = tuple(a + b if alike else a - b for a, b in zip(left.parts, right.parts, strict=True))
        return left._new(parts, left.exponent, left.bound + right.bound, left.noise + right.noise, left.factor)

    def times(self, factor: float) -> Ciphertexts:
        """A multiple."""
        return self._new(self.parts, self.exponent, self.bound, self.noise, self.factor * factor)

    def settled(self) -> Ciphertexts:
        """The same with a factor of 1 or -1: integers are multiplied by m, and the exponent grows by s."""
        m, s = as_ratio(abs(self.factor))  # SEAL takes a negative m as t - |m|, which would multiply the noise by t
        return self._multiplied(m, self.exponent + s, math.copysign(1.0, self.factor))

    def _raised(self, exponent: int) -> Ciphertexts:
        return self._multiplied(1 << (exponent - self.exponent), exponent, self.factor)

    def _multiplied(self, by: int, exponent: int, factor: float) -> Ciphertexts:
        check_room(self.bound * by, self.noise * by)
        # All slots of a part are in use, so the same number in each is a constant polynomial: noise grows by `by`.
        parts = self.parts if by == 1 else tuple(part * by for part in self.parts)
        return self._new(parts, exponent, self.bound * by, self.noise * by, factor)

    def _new(self, parts: tuple[Any, ...], exponent: int, bound: int, noise: int, factor: float) -> Ciphertexts:
        return Ciphertexts(self, tuple(self.shape), parts, exponent, bound, noise, factor)

    def over_clients(self) -> Ciphertexts:
        """The sum over axis 0, which every client encrypted on its own."""
        clients = len(self)
        bound, noise = clients * self.bound, clients * self.noise
        check_room(bound, noise)
        each = len(self.parts) // clients
        parts = list(self.parts[:each])
        for position in range(each, len(self.parts)):
            parts[position % each] = parts[position % each] + self.parts[position]
        return Ciphertexts(self, tuple(self.shape[1:]), tuple(parts), self.exponent, bound, noise, self.factor)


def check_room(bound: int, noise: int) -> None:
    """Refuse integers or noise that could be too large to come back.

    Raises:
        ConfigError: they could.
    """
    if bound > LARGEST_INTEGER or noise > LARGEST_NOISE:
        raise ConfigError(
            f"Encrypted sums should stay within 2^{LARGEST_INTEGER.bit_length()}, with noise within "
            f"2^{LARGEST_NOISE.bit_length()}. They could reach 2^{bound.bit_length()} and 2^{noise.bit_length()}: "
            f"lower fixed_point.largest or fixed_point.fraction_bits, or take fewer clients or rounds."
        )


class Keys:
    """The key pair that all devices share. Of it, the server gets `public`."""

    def __init__(self) -> None:
        library = tenseal()
        self._secret = library.context(library.SCHEME_TYPE.BFV, RING, PLAIN_MODULUS, list(MODULUS_BITS), n_threads=1)
        self.public = self._secret.copy()
        self.public.make_context_public()

    def encrypt(self, integers: npt.NDArray[np.int64]) -> tuple[Any, ...]:
        """Blocks of RING integers, the last one padded with zeros; done with the public key."""
        padded = np.pad(integers, (0, -len(integers) % RING)).reshape(-1, RING)
        library = tenseal()
        return tuple(library.bfv_vector(self.public, block.tolist()) for block in padded)

    def decrypt(self, sealed: Ciphertexts) -> tuple[npt.NDArray[np.int64], int]:
        """The integers, flat, and their exponent."""
        settled, key = sealed.settled(), self._secret.secret_key()
        blocks = [np.array(part.decrypt(key), dtype=np.int64) for part in settled.parts]
        return int(settled.factor) * np.concatenate(blocks)[: sealed.numel()], settled.exponent
