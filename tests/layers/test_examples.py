"""Every example runs as it stands, and every config is one the package takes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from fedrecgel.cli.main import main
from fedrecgel.runs.config import read_config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
CONFIGS = sorted((ROOT / "configs").rglob("*.toml"))
TIMEOUT = 300


NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    """From top to bottom in a fresh kernel; a cell that ends in a value shows it."""
    read = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the notebook's own libraries
        done = NotebookClient(read, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
        done.execute()
    code = [cell for cell in read.cells if cell.cell_type == "code"]
    assert len(NOTEBOOKS) >= 2
    assert any("text/html" in output.get("data", {}) for cell in code for output in cell.outputs)


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


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    assert "Recommendation(item=" in done.stdout
    assert (tmp_path / "runs" / "mine" / "summary.json").exists()


@pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")  # in the command line of Flower's own libraries
def test_the_commands_of_the_readme_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one folder, as a reader would type them, with one round each; published data only where it is."""
    monkeypatch.chdir(tmp_path)
    for folder in ("configs", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    rows = "".join(f"u{user},i{(7 * user + 3 * k) % 150}\n" for user in range(20) for k in range(8))
    (tmp_path / "mine.csv").write_text("user,item\n" + rows)
    readme = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/commands.md"))
    lines = re.findall(r"^(?:\$ |pip install .*&& )?(fedrecgel train.*?)(?:\s+#.*)?$", readme, flags=re.MULTILINE)
    assert len(lines) > 4
    for line in lines:
        words = shlex.split(line)[1:]
        if "filmtrust" in words and not os.environ.get("FEDRECGEL_DATA"):
            continue
        if "flower" in words and find_spec("flwr") is None:  # extra `flower`: tests/engine/flower runs it for real
            continue
        short = [] if "spectra" in words else ["--rounds", "1"]  # which states its rounds
        assert main([*words, *short, "--quiet"]) == 0, line


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_config_loads(config: Path) -> None:
    loaded = read_config(config)
    if config.parent.name == "configs":
        assert loaded.data.name == config.stem, "a config is named after its data set"
    else:
        found = (loaded.data.name, loaded.method.name)
        assert found == (config.parent.name, config.stem), (
            "a config is named after its method, in its data set's folder"
        )
