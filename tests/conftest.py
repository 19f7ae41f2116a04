"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def raw_data() -> Path:
    """The folder with the raw files of published data sets."""
    folder = os.environ.get("FEDRECGEL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the raw data sets: set FEDRECGEL_DATA to their folder")
    return Path(folder)
