"""Shamir's shares, and the envelopes they travel in."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.channels.shares import Pair, combine, disclose, enclose, split
from fedrecgel.errors import IncompleteError

SECRET = bytes(range(16))


def times(a: int, b: int) -> int:
    """In GF(2^128) with x^128 + x^7 + x^2 + x + 1, written out."""
    found = 0
    while b:
        found ^= a if b & 1 else 0
        a, b = a << 1, b >> 1
        if a >> 128:
            a ^= (1 << 128) | 0b10000111
    return found


def test_two_shares_lie_on_a_line_through_the_secret() -> None:
    shares = split(SECRET, 2, [5, 8, 9])
    first, second, third = (int.from_bytes(shares[holder]) for holder in (5, 8, 9))
    slope = first ^ int.from_bytes(SECRET)
    assert second == times(slope, 2) ^ int.from_bytes(SECRET)
    assert third == times(slope, 3) ^ int.from_bytes(SECRET)


def test_any_holders_open_a_secret_and_fewer_do_not() -> None:
    holders = [3, 20, 21, 40, 77]
    shares = split(SECRET, 3, holders)
    for chosen in combinations(holders, 3):
        assert combine({holder: shares[holder] for holder in chosen}, 3, holders) == SECRET
    with pytest.raises(IncompleteError, match="opens with 3 shares"):
        combine({holder: shares[holder] for holder in holders[:2]}, 3, holders)
    assert combine({**shares, 3: bytes(16)}, 3, holders) != SECRET, "a wrong share gives something else"
    assert split(SECRET, 1, [4, 5]) == {4: SECRET, 5: SECRET}


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=16, max_size=16), st.integers(1, 6), st.integers(0, 4))
def test_what_is_split_comes_back(secret: bytes, threshold: int, more: int) -> None:
    holders = list(range(10, 10 + threshold + more))
    assert combine(split(secret, threshold, holders), threshold, holders) == secret


def test_an_envelope_opens_for_its_holder_only() -> None:
    pair, key = Pair(bytes(16), SECRET), b"k" * 32
    envelope = enclose(pair, key, b"1 to 2")
    assert len(envelope) == 48
    assert disclose(envelope, key, b"1 to 2") == pair
    assert disclose(envelope, key, b"1 to 3") is None
    assert disclose(envelope, b"x" * 32, b"1 to 2") is None
    assert disclose(envelope[:-1] + bytes([envelope[-1] ^ 1]), key, b"1 to 2") is None
    assert disclose(b"", key, b"1 to 2") is None
