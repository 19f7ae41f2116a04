from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from tests.layers.picture import rooms

import fedrecgel
from fedrecgel.cli.common import field_docs
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import section_types

ROOT = Path(fedrecgel.__file__).parent
ORDER = [*rooms(), {"__main__"}]
"""A name imports only from itself and from names before; two names in one place do not import each other."""
LAYER = {name: level for level, names in enumerate(ORDER) for name in names}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def imported(path: Path) -> set[str]:
    """The parts of this package a file imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("fedrecgel.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LAYER, f"{own} has no place in the order of imports"
    for other in imported(path):
        assert other == own or LAYER[other] < LAYER[own], f"{own} imports {other}"


def test_the_walk_sees_imports() -> None:
    assert {"draws", "methods", "tensors"} <= imported(ROOT / "channels" / "base.py")
    assert "data" in imported(ROOT / "methods" / "base.py")


def test_exported_names() -> None:
    """What mypy sees is what is imported when it is asked for."""
    tree = ast.walk(ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8")))
    typed = {
        alias.asname or alias.name: getattr(import_module(node.module or ""), alias.name)
        for node in tree
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedrecgel.")
        for alias in node.names
    }
    assert typed.keys() == set(fedrecgel.__all__) == set(dir(fedrecgel))
    assert all(getattr(fedrecgel, name) is value for name, value in typed.items())
    assert not hasattr(fedrecgel, "trian")


def test_rooms_need_no_import_of_their_own() -> None:
    ask = "import fedrecgel; print(fedrecgel.errors.ConfigError.exit_code, fedrecgel.methods.base.Need.SUM.value)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "1"]


def test_the_registry_is_the_folder() -> None:
    files = {path.stem for path in (ROOT / "methods").glob("*.py")} - {
        "__init__",
        "author",
        "base",
        "histories",
        "messages",
        "outside",
        "spectral_start",
    }
    assert {name.replace("-", "_") for name in METHODS} == files
    for name, kind in METHODS.items():
        assert kind.__module__ == f"fedrecgel.methods.{name.replace('-', '_')}"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_explains_itself(name: str) -> None:
    kind = METHODS[name]
    about = sys.modules[kind.__module__].__doc__ or ""
    assert "Idea" in about
    assert kind.paper
    assert kind.sends
    docs = field_docs(kind)
    assert [field.name for field in fields(kind) if not docs.get(field.name)] == []
    assert inspect.getdoc(kind)


@pytest.mark.parametrize("section", section_types())
def test_every_setting_has_a_docstring(section: str) -> None:
    kind = section_types()[section]
    docs = field_docs(kind)
    assert [field.name for field in fields(kind) if not docs.get(field.name)] == []


def test_only_the_cli_prints() -> None:
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] != "cli":
            calls = [
                node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
            ]
            assert not [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"], path


def test_only_the_flower_engine_imports_flower() -> None:
    for path in MODULES:
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        names = [alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names]
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        names += [node.module or "" for node in tree if isinstance(node, ast.ImportFrom)]
        if any(name.split(".")[0] == "flwr" for name in names):
            assert path == ROOT / "engine" / "flower" / "apps.py"
