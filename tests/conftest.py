"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: idle threads must not spin
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors in tests are tiny

import pytest
from jaxtyping import install_import_hook

import tests.typecheck  # noqa: F401 - the hook below finds it by name

install_import_hook("fedrecgel", "tests.typecheck.check")  # every call of the package, shapes included


@pytest.fixture(scope="session")
def raw_data() -> Path:
    """The folder with the raw files of published data sets."""
    folder = os.environ.get("FEDRECGEL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the raw data sets: set FEDRECGEL_DATA to their folder")
    return Path(folder)
