from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fedrecgel.errors import ConfigError
from fedrecgel.methods import METHODS, find_method, full_name, method_label, name_of
from fedrecgel.methods.fedncf import FedNCF

FILE = """
from dataclasses import dataclass
import fedrecgel as fr
from fedrecgel.methods.fedncf import FedNCF

NUMBERS = []

@dataclass(frozen=True, kw_only=True)
class Mine(FedNCF):
    "FedNCF under another name."
    extra: float = 1.0

@dataclass(frozen=True, kw_only=True)
class Bare(FedNCF):
    extra: float

class Unfinished(fr.Method):
    pass

def function():
    pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.py"
    path.write_text(FILE)
    return path


def test_a_file_is_loaded_once_however_its_path_is_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_method(f"{file}:Mine")
    assert issubclass(found, FedNCF)
    monkeypatch.chdir(file.parent)
    assert find_method("my.py:Mine") is found
    assert find_method("../" + file.parent.name + "/my.py:Mine") is found
    assert full_name("my.py:Mine") == f"{file.resolve()}:Mine"


def test_files_of_one_name_do_not_meet(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "deeper" / "my.py"
    other.parent.mkdir()
    other.write_text(FILE.replace("1.0", "2.0"))
    assert find_method(f"{other}:Mine") is not find_method(f"{file}:Mine")


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("Mien", r"Unknown method 'Mien' in .*my\.py\. Did you mean 'Mine'\? Correct method\.name .*config\.toml"),
        ("function", r"should be a class derived from fedrecgel\.Method\. Found a function\."),
        ("NUMBERS", r"should be a class derived from fedrecgel\.Method\. Found a list\."),
        ("Unfinished", r"should define client_update, .*score, server_update, paper, sends\. See examples/new_method"),
        ("Bare", r"Every hyper-parameter of '.*Bare' should have a default\. extra has none\."),
        ("", r"named FILE\.py:CLASS"),
    ],
)
def test_what_is_no_method_is_refused(file: Path, label: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_method(f"{file}:{label}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'Mine' should be in the file .*gone\.py, which does not exist\. Correct"):
        find_method(f"{tmp_path / 'gone.py'}:Mine")
    with pytest.raises(ConfigError, match=r"named FILE\.py:CLASS"):
        find_method("my_module:Mine")


@pytest.mark.parametrize(
    ("text", "raises"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import not_installed", "ModuleNotFoundError: No module named 'not_installed'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Mine(", "SyntaxError"),
    ],
)
def test_a_file_that_raises_can_be_mended(tmp_path: Path, text: str, raises: str) -> None:
    path = tmp_path / "my.py"
    path.write_text(text)
    before = set(sys.modules)
    with pytest.raises(ConfigError, match=rf"'Mine' cannot be imported: .*my\.py raises {raises}"):
        find_method(f"{path}:Mine")
    assert not set(sys.modules) - before
    path.write_text(FILE + "\n# other bytes\n")
    assert find_method(f"{path}:Mine").__name__ == "Mine"


def test_a_class_in_no_file_is_found_in_its_session_only() -> None:
    class Local(FedNCF):
        """Defined in a function: no other process can import it."""

    assert name_of(Local) == "session:Local"
    assert find_method("session:Local") is Local

    class Local(FedNCF):  # type: ignore[no-redef]  # a cell that is run again
        """Another one of this name."""

    assert name_of(Local) == "session:Local#2"
    assert find_method("session:Local") is not Local
    with pytest.raises(ConfigError, match=r"'Gone' was defined in a Python session.*method\.name.*'FILE\.py:Gone'"):
        find_method("session:Gone")


def test_names_lead_back(file: Path) -> None:
    assert {name_of(kind) for kind in METHODS.values()} == set(METHODS)
    found = find_method(f"{file}:Mine")
    assert name_of(found) == f"{file.resolve()}:Mine"
    assert method_label(name_of(found)) == "Mine"
    assert method_label("fedncf-weights") == "fedncf-weights"


def test_hyper_parameters_need_the_decorator(tmp_path: Path) -> None:
    file = tmp_path / "bare.py"
    file.write_text("from fedrecgel.methods.fedmf import FedMF\n\n\nclass Bare(FedMF):\n    more: float = 1.0\n")
    with pytest.raises(ConfigError, match=r"should be decorated with @dataclass.*Without it more would not be"):
        find_method(f"{file}:Bare")
