"""Shares of secrets: Shamir's scheme over GF(2^128), and envelopes in which shares travel through the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedrecgel.channels.masks import SEED_BYTES, library
from fedrecgel.errors import IncompleteError

KEY_BYTES = 32
NONCE = bytes(12)


class Pair(NamedTuple):
    """A holder's shares of both secrets of a participant. It gives away one of them, never both."""

    mask: bytes
    """Of the seed of the participant's own mask: asked for if its upload arrived."""
    key: bytes
    """Of the seed of its key for masks with neighbours: asked for if its upload did not arrive."""


def split(secret: bytes, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
    """A share for each holder, of which so many give the secret and fewer say nothing."""
    shamir = library("Crypto.Protocol.SecretSharing").Shamir
    if threshold == 1:  # a line through one point is flat; the library draws no coefficient either
        return dict.fromkeys(holders, secret)
    parts = shamir.split(threshold, len(holders), secret)
    return {holder: share for holder, (_, share) in zip(holders, parts, strict=True)}


def combine(shares: Mapping[int, bytes], threshold: int, holders: Sequence[int]) -> bytes:
    """The secret, from the shares of some of its holders.

    Raises:
        IncompleteError: they are too few.
    """
    if len(shares) < threshold:
        raise IncompleteError(f"A secret opens with {threshold} shares. Found {len(shares)}.")
    index = {holder: number for number, holder in enumerate(holders, start=1)}
    chosen = sorted(shares)[:threshold]
    found: bytes = library("Crypto.Protocol.SecretSharing").Shamir.combine(
        [(index[holder], shares[holder]) for holder in chosen]
    )
    return found


def enclose(pair: Pair, key: bytes, about: bytes) -> bytes:
    """Both shares, readable by whoever has the key; `about` says from whom to whom, and is authenticated.

    A key encloses one pair in one direction only, so the nonce may be constant.
    """
    cipher = library("cryptography.hazmat.primitives.ciphers.aead").ChaCha20Poly1305(key)
    sealed: bytes = cipher.encrypt(NONCE, pair.mask + pair.key, about)
    return sealed


def disclose(envelope: bytes, key: bytes, about: bytes) -> Pair | None:
    """The shares in an envelope; None if it was not made with this key, for this holder."""
    invalid = library("cryptography.exceptions").InvalidTag
    try:
        text = (
            library("cryptography.hazmat.primitives.ciphers.aead").ChaCha20Poly1305(key).decrypt(NONCE, envelope, about)
        )
    except invalid:
        return None
    return Pair(text[:SEED_BYTES], text[SEED_BYTES:]) if len(text) == 2 * SEED_BYTES else None
