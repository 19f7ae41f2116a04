from __future__ import annotations

from pathlib import Path

import pytest
from tests.results import make_results


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiments' folder; tests only read it."""
    return make_results(tmp_path_factory.mktemp("report"))
