"""Data of the oracle tests."""

from __future__ import annotations

import pytest

from fedrecgel.data.split import Split
from tests.oracles.plain import MORE_SIZES, ragged_split


@pytest.fixture(scope="session")
def split() -> Split:
    """Ten clients of 5 to 24 items."""
    return ragged_split()


@pytest.fixture(scope="session")
def small_split() -> Split:
    """Fourteen clients of 5 to 16 items, no row repeated, in less than half the catalogue."""
    return ragged_split(MORE_SIZES, 60, repeated=False)
