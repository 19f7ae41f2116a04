"""Keys and masks: known answers of the standards, and what a mask looks like."""

from __future__ import annotations

import hmac
from hashlib import sha256

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrecgel.channels import masks
from fedrecgel.channels.masks import add_mask, agree, derive, library, private_key, public_bytes
from fedrecgel.errors import ConfigError

ALICE = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB_SECRET = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
BOB = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
SHARED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def hkdf(secret: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869 with SHA-256 and no salt, written out."""
    key, block, found = hmac.digest(bytes(32), secret, "sha256"), b"", b""
    for number in range(1, 1 + -(-length // 32)):
        block = hmac.digest(key, block + info + bytes([number]), "sha256")
        found += block
    return found[:length]


def test_two_participants_agree_as_rfc_7748_says() -> None:
    """Section 6.1; what they agree on is then bound to both public keys and to its purpose."""
    bob = X25519PrivateKey.from_private_bytes(bytes.fromhex(BOB_SECRET))
    assert public_bytes(bob).hex() == BOB
    pair = b"".join(sorted([bytes.fromhex(ALICE), bytes.fromhex(BOB)]))
    expected = hkdf(bytes.fromhex(SHARED) + pair, b"fedrecgel secagg/mask", 16)
    assert agree(bob, bytes.fromhex(ALICE), "mask") == expected


def test_what_is_derived_for_one_purpose_is_hkdf() -> None:
    for length in (16, 32, 80):
        assert derive(b"secret", "some purpose", length) == hkdf(b"secret", b"fedrecgel secagg/some purpose", length)
    assert derive(b"secret", "one") != derive(b"secret", "other")


def test_both_sides_find_the_same_and_a_third_does_not() -> None:
    one, other, third = (private_key(bytes([number] * 16)) for number in range(3))
    assert agree(one, public_bytes(other), "mask") == agree(other, public_bytes(one), "mask")
    assert agree(one, public_bytes(other), "mask") != agree(one, public_bytes(other), "envelope")
    assert agree(third, public_bytes(other), "mask") != agree(one, public_bytes(other), "mask")
    with pytest.raises(ValueError, match="shared key"):
        agree(one, bytes(32), "mask")


def test_a_mask_is_the_bare_stream_of_aes_in_counter_mode() -> None:
    """AES-128 of the blocks 0 and 1 under the key 0, as FIPS 197 and the tests of GCM have them."""
    values = {"a": np.zeros(3, dtype=np.uint32), "b": np.zeros(5, dtype=np.uint32)}
    add_mask(values, bytes(16))
    stream = "66e94bd4ef8a2c3b884cfa59ca342b2e58e2fccefa7e3061367f1d57a4e7455a"
    assert np.concatenate([values["a"], values["b"]]).astype("<u4").tobytes().hex() == stream


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_what_is_added_can_be_subtracted_whatever_its_length(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    seed = sha256(b"seed").digest()[:16]
    for size in (0, 1, 7, 64, 129):
        before = {"x": rng.integers(0, 2**31, size).astype(dtype), "y": rng.integers(0, 9, 3).astype(np.uint64)}
        values = {name: value.copy() for name, value in before.items()}
        add_mask(values, seed)
        monkeypatch.setattr(masks, "PIECE", 64)  # pieces change nothing
        add_mask(values, seed, subtract=True)
        monkeypatch.undo()
        for name, value in before.items():
            np.testing.assert_array_equal(values[name], value)


def test_a_mask_looks_like_chance() -> None:
    """Bytes by chi-square, bits by runs: what is behind a mask has no influence on either."""
    for content in (0, 12345):
        values = {"x": np.full(200_000, content, dtype=np.uint32)}
        add_mask(values, b"0123456789abcdef")
        counts = np.bincount(values["x"].view(np.uint8), minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * np.sqrt(2 * 255)
        bits = np.unpackbits(values["x"].view(np.uint8))
        runs = 1 + np.count_nonzero(np.diff(bits))
        assert abs(runs - len(bits) / 2) < 6 * np.sqrt(len(bits)) / 2
        probability = counts / counts.sum()
        assert -(probability * np.log2(probability)).sum() > 7.999, "bits of entropy in a byte"


def test_a_missing_library_is_named() -> None:
    with pytest.raises(ConfigError, match=r"needs the library nothing_like_it.*extra `crypto`"):
        library("nothing_like_it.at_all")
