"""Keys and masks: X25519 between two participants, HKDF to tell purposes apart, AES in counter mode for long masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrecgel.errors import ConfigError

SEED_BYTES = 16
"""128 bits: what a mask or a key is made of, and what is cut into shares."""
PIECE = 1 << 20
"""Bytes of a mask that are made at a time: they stay in the cache until they are added."""
Words = npt.NDArray[np.unsignedinteger[Any]]
"""Integers modulo 2^32 or 2^64."""


def library(name: str) -> Any:
    """A module of one of the libraries, imported when it is first used.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"Channel 'secagg' needs the library {name.partition('.')[0]}, which is not installed. "
            'Install the extra `crypto`: pip install -c constraints.txt -e ".[crypto]".'
        ) from error


def derive(secret: bytes, purpose: str, length: int = SEED_BYTES) -> bytes:
    """Bytes for one purpose, from which nothing follows about those for another (HKDF, RFC 5869, with SHA-256)."""
    hashes = library("cryptography.hazmat.primitives.hashes")
    hkdf = library("cryptography.hazmat.primitives.kdf.hkdf").HKDF
    made: bytes = hkdf(hashes.SHA256(), length, None, f"fedrecgel secagg/{purpose}".encode()).derive(secret)
    return made


def private_key(seed: bytes) -> Any:
    """The X25519 key that a seed stands for."""
    kind = library("cryptography.hazmat.primitives.asymmetric.x25519").X25519PrivateKey
    return kind.from_private_bytes(derive(seed, "x25519", 32))


def public_bytes(key: Any) -> bytes:
    """The public half of a key: 32 bytes."""
    made: bytes = key.public_key().public_bytes_raw()
    return made


def agree(key: Any, public: bytes, purpose: str, length: int = SEED_BYTES) -> bytes:
    """What two participants have in common and nobody else knows.

    Raises:
        ValueError: the other key is no point that hides anything.
    """
    kind = library("cryptography.hazmat.primitives.asymmetric.x25519").X25519PublicKey
    theirs = kind.from_public_bytes(public)
    pair = b"".join(sorted([public_bytes(key), public]))  # both sides bind what they agreed on to both keys
    return derive(key.exchange(theirs) + pair, purpose, length)


def add_mask(values: Mapping[str, Words], seed: bytes, *, subtract: bool = False) -> None:
    """Add the mask of a seed to unsigned integers, or subtract it: in place, modulo 2^32 or 2^64.

    The mask is one AES-128-CTR stream over all tensors in the order of their names, so no two of them share any of it.
    """
    for flat, mask in _masks(values, seed):
        if subtract:
            flat -= mask
        else:
            flat += mask


def _masks(values: Mapping[str, Words], seed: bytes) -> Iterator[tuple[Words, Words]]:
    """Pieces of flat tensors, each with its piece of the mask."""
    ciphers = library("cryptography.hazmat.primitives.ciphers")
    # A key serves one stream and is then forgotten, so the counter may begin at 0.
    stream = ciphers.Cipher(ciphers.algorithms.AES(seed), ciphers.modes.CTR(bytes(16))).encryptor()
    room = bytearray(PIECE + 15)  # as update_into asks for, with what a block may add
    for name in sorted(values):
        flat = values[name].reshape(-1)
        per_piece = PIECE // flat.itemsize
        for start in range(0, len(flat), per_piece):
            piece = flat[start : start + per_piece]
            n_bytes = stream.update_into(_zeros(piece.nbytes), room)
            little = flat.dtype.newbyteorder("<")  # the same on every machine
            yield piece, np.frombuffer(room, dtype=little, count=n_bytes // flat.itemsize)


@lru_cache(maxsize=8)
def _zeros(n_bytes: int) -> bytes:
    """What is encrypted to get the bare stream."""
    return bytes(n_bytes)
