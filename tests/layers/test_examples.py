"""Every example runs as it stands, and every config is one the package takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedrecgel.experiments.config import read_config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
TIMEOUT = 300


def test_there_are_examples_and_configs() -> None:
    assert EXAMPLES
    assert CONFIGS


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example should show something"


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_config_loads(config: Path) -> None:
    loaded = read_config(config)
    assert loaded.data.name == config.stem, "a config is named after its data set"
