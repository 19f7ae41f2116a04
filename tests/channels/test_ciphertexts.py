from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedrecgel.channels.ciphertexts import (
    LARGEST_INTEGER,
    LARGEST_NOISE,
    PLAIN_MODULUS,
    RING,
    Ciphertexts,
    Keys,
    check_room,
)
from fedrecgel.channels.fixedpoint import as_ratio
from fedrecgel.errors import ConfigError, PrivacyError

pytest.importorskip("tenseal", reason="the extra `crypto` is not installed")

EXPONENT, BOUND = 20, 2**23
integers = st.lists(st.integers(-BOUND, BOUND), min_size=3, max_size=3)
factors = st.floats(0.001, 100.0) | st.floats(-100.0, -0.001) | st.sampled_from([1.0, -1.0, 0.5])


@cache
def keys() -> Keys:
    return Keys()


def sealed(values: list[int], *shape: int) -> Ciphertexts:
    parts = keys().encrypt(np.array(values, dtype=np.int64))
    return Ciphertexts(torch.zeros(1), shape or (len(values),), parts, EXPONENT, BOUND)


def read(value: Tensor) -> list[Fraction]:
    assert isinstance(value, Ciphertexts)
    found, exponent = keys().decrypt(value)
    return [Fraction(integer, 2**exponent) for integer in found.tolist()]


def test_the_modulus_packs_integers_and_leaves_room() -> None:
    assert all(pow(base, PLAIN_MODULUS - 1, PLAIN_MODULUS) == 1 for base in (2, 3, 5, 7, 11)), "it should be prime"
    assert PLAIN_MODULUS % (2 * RING) == 1
    assert PLAIN_MODULUS.bit_length() == 58


@settings(max_examples=20, deadline=None)
@given(integers, integers, integers, factors, factors)
def test_arithmetic_is_exact_with_the_rounded_factor(
    a: list[int], b: list[int], c: list[int], first: float, second: float
) -> None:
    """Against fractions; factors in a row are multiplied before they are rounded."""
    m, s = as_ratio(second * first)
    assume((BOUND << s) + 2 * BOUND * abs(m) <= LARGEST_INTEGER)  # what could wrap around is refused, as tested below
    found = read(sealed(a) - second * (sealed(b) + sealed(c)) * first)
    scale = Fraction(m, 2**s) / 2**EXPONENT
    assert found == [Fraction(x, 2**EXPONENT) - scale * (y + z) for x, y, z in zip(a, b, c, strict=True)]


@settings(max_examples=10, deadline=None)
@given(integers, factors)
def test_division_and_the_sum_of_two_scaled_tensors(a: list[int], divisor: float) -> None:
    m, s = as_ratio(1 / divisor)
    wanted = [Fraction(m * x, 2 ** (s + EXPONENT)) for x in a]
    assert read(sealed(a) / divisor) == wanted
    assert read(sealed(a) / divisor + sealed(a) / divisor) == [2 * x for x in wanted]


def test_many_blocks_and_many_clients() -> None:
    generator = np.random.default_rng(0)
    tables = generator.integers(-BOUND, BOUND, (3, RING + 5))
    parts = tuple(part for table in tables for part in keys().encrypt(table))
    assert len(parts) == 6
    uploads = Ciphertexts(torch.zeros(1), (3, RING + 5), parts, EXPONENT, BOUND)
    total = uploads.sum(0)
    assert isinstance(total, Ciphertexts)
    assert total.shape == (RING + 5,)
    assert total.bound == 3 * BOUND
    assert keys().decrypt(total)[0].tolist() == tables.sum(0).tolist()


def test_the_largest_integers_and_the_largest_noise_still_come_back() -> None:
    extremes = [LARGEST_INTEGER, -LARGEST_INTEGER, 0]
    parts = keys().encrypt(np.array(extremes, dtype=np.int64))
    largest = Ciphertexts(torch.zeros(1), (3,), parts, 0, LARGEST_INTEGER)
    assert read(largest) == extremes
    ones = Ciphertexts(torch.zeros(1), (3,), keys().encrypt(np.array([1, -1, 0])), 0, 1)
    by = 2 ** ((LARGEST_NOISE // ones.noise).bit_length() - 1)
    assert by >= 2**40
    assert read(ones * float(by)) == [by, -by, 0]


def test_what_could_overflow_is_refused() -> None:
    small = Ciphertexts(torch.zeros(1), (1,), keys().encrypt(np.array([1])), 0, LARGEST_INTEGER // 2)
    assert read(small + small) == [2]
    refused = r"could reach 2\^5.*lower fixed_point\.largest"
    with pytest.raises(ConfigError, match=refused):
        small + small + small
    with pytest.raises(ConfigError, match=refused):
        small - 3.0 * small
    with pytest.raises(ConfigError, match=refused):
        read(2.5 * small)
    with pytest.raises(ConfigError):
        check_room(1, LARGEST_NOISE + 1)


def test_a_fine_exponent_makes_a_coarse_tensor_large() -> None:
    """Aligning two exponents multiplies the coarser one: that counts, too."""
    with pytest.raises(ConfigError, match="Encrypted sums should stay within"):
        sealed([1, 2, 3]) + 1e-9 * sealed([1, 2, 3])


def test_nothing_but_linear_operations() -> None:
    value = sealed([1, 2, 3, 4], 2, 2)
    curious_operations: list[Callable[[], Tensor]] = [
        lambda: value * value,
        lambda: value.abs(),
        lambda: value[0],
        lambda: value.sum(1),
        lambda: value + torch.zeros(2, 2),
        lambda: torch.zeros(2, 2) - value,
        lambda: value + 1,
        lambda: value.clone(),
        lambda: value.sub_(value),
        lambda: value @ value,
    ]
    for curious in curious_operations:
        with pytest.raises(PrivacyError, match="only add, subtract and scale"):
            curious()
    assert repr(value) == "Ciphertexts(shape=(2, 2))"


def test_equal_tables_have_different_ciphertexts() -> None:
    first, second = sealed([7, 7, 7]), sealed([7, 7, 7])
    assert first.parts[0].serialize() != second.parts[0].serialize()


def test_nothing_the_server_gets_can_decrypt() -> None:
    value = sealed([1, 2, 3]) + 0.5 * sealed([1, 2, 3])
    assert isinstance(value, Ciphertexts)
    contexts = [keys().public, *(part.context() for part in value.parts)]
    for context in contexts:
        assert not context.is_private()
        assert not context.has_secret_key()
    with pytest.raises(ValueError, match="secret_key"):
        value.parts[0].decrypt()
    other = Keys()
    assert other.decrypt(value)[0].tolist() != keys().decrypt(value)[0].tolist()


def test_bytes_are_those_of_the_wire() -> None:
    value = sealed([1, 2, 3])
    assert value.n_bytes == len(value.parts[0].serialize())
    assert 250_000 < value.n_bytes < 270_000  # two polynomials of 8,192 coefficients, two words each


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(ConfigError, match=r"TenSEAL, which is not installed.*`crypto`"):
        Keys()
