"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: idle threads must not spin
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors in tests are tiny
os.environ.setdefault("FEDRECGEL_ACCELERATE", "false")  # numbers must not depend on what this machine has compiled

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, whose children would not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis
import pytest
from jaxtyping import config as shape_checks
from jaxtyping import install_import_hook

import tests.typecheck

install_import_hook(tests.typecheck.modules_with_shapes(), "tests.typecheck.check")

WHOLE_RUNS = frozenset(
    {"audit", "cli", "contract", "engine", "extension", "fuzz", "report", "runs", "search", "studies"}
)
"""Rooms whose tests train whole runs: checks of shapes would take half of their time, for calls that others make."""

hypothesis.settings.register_profile("shared-machine", deadline=None)  # a busy core is no failure
hypothesis.settings.load_profile("shared-machine")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The whole suite on all cores; a part of it right here, where starting workers would take longer than it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores > 1 and config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


@pytest.fixture(autouse=True)
def shapes_are_checked_where_parts_are_tested(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where whole runs are trained, they are not."""
    room = request.path.relative_to(Path(__file__).parent).parts[0]
    shape_checks.update("jaxtyping_disable", value=room in WHOLE_RUNS)
    yield
    shape_checks.update("jaxtyping_disable", value=False)


@pytest.fixture(scope="session")
def raw_data() -> Path:
    """The folder with the raw files of published data sets."""
    folder = os.environ.get("FEDRECGEL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the raw data sets: set FEDRECGEL_DATA to their folder")
    return Path(folder)
