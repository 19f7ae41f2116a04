"""Methods outside this package: a class in a file, `path/to/my.py:BiasMF`, or an entry point of another package."""

from __future__ import annotations

import sys
from dataclasses import MISSING, fields
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType

from fedrecgel.errors import ConfigError, unknown
from fedrecgel.methods.base import Method

GROUP = "fedrecgel.methods"
"""The entry-point group in which other packages announce their methods."""
SESSION = "session"
"""Stands for the file in the name of a class that is in none, as in a notebook: `session:BiasMF`."""
WAY_OUT = "Correct method.name (in --method, or in config.toml of a saved run), or put it back."

_classes: dict[str, type[Method]] = {}
"""Classes that need no import any more, by full name."""
_modules: dict[Path, ModuleType] = {}


def full_name(name: str) -> str:
    """The name with the path of its file made absolute, as a run remembers it; other names stay as they are.

    A relative path is relative to the current folder, as those of data files are.
    """
    path, colon, label = name.rpartition(":")
    return f"{Path(path).expanduser().resolve()}:{label}" if colon and path.endswith(".py") else name


def method_label(name: str) -> str:
    """The short name for folders, tables and labels.

    >>> method_label("path/to/my.py:BiasMF"), method_label("fedncf")
    ('BiasMF', 'fedncf')
    """
    return name.rpartition(":")[2]


def is_outside(name: str) -> bool:
    """Whether a name says where its class is, instead of naming a registered method."""
    return ":" in name or name.endswith(".py")


def remember(kind: type[Method]) -> str:
    """The full name under which `class_at` finds a class: its file, if other processes can find it there.

    In this process it stays this very class: its file is not run again.
    """
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    in_file = file is not None and Path(file).is_file() and kind.__qualname__ == kind.__name__
    name = full_name(f"{file if in_file else SESSION}:{kind.__name__}")
    if not in_file:  # a cell that is run again defines another class; results of the first one keep theirs
        numbered = (name if number == 1 else f"{name}#{number}" for number in count(1))
        name = next(free for free in numbered if _classes.get(free, kind) is kind)
    _classes[name] = kind
    return name


def class_at(name: str) -> type[Method]:
    """The class that `path/to/my.py:BiasMF` names; the file is run once.

    Raises:
        ConfigError: there is no such file or class, the file cannot be imported, or the class is no method.
    """
    name = full_name(name)
    if name not in _classes:
        place, _, label = name.rpartition(":")
        if place == SESSION:
            raise ConfigError(
                f"Method '{label}' was defined in a Python session, in no file, and that session is over. "
                f"Put the class into a file and set method.name in config.toml to 'FILE.py:{label}'."
            )
        if not place.endswith(".py") or not label:
            raise ConfigError(f"A method in a file is named FILE.py:CLASS, as in my.py:BiasMF. Found '{name}'.")
        _classes[name] = _class_in(_imported(Path(place), label), label, place)
    return _classes[name]


def _class_in(module: ModuleType, label: str, place: str) -> type[Method]:
    if label not in vars(module):
        own = [name for name, value in vars(module).items() if _is_own(value, module)]
        raise ConfigError(f"{unknown('method', label, own, f'in {place}')} {WAY_OUT}")
    return check_class(vars(module)[label], f"{place}:{label}")


def _is_own(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, Method) and value.__module__ == module.__name__


def _imported(path: Path, label: str) -> ModuleType:
    if path in _modules:
        return _modules[path]
    if not path.is_file():
        raise ConfigError(f"Method '{label}' should be in the file {path}, which does not exist. {WAY_OUT}")
    # Files of one name may lie in many folders; dataclasses look their module up in sys.modules.
    unique = f"{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    spec = spec_from_file_location(unique, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} should be a Python file. It cannot be imported.")
    module = sys.modules[unique] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[unique]
        raise ConfigError(
            f"Method '{label}' cannot be imported: {path} raises {type(error).__name__}: {error}. "
            f"Correct the file; --debug shows the line."
        ) from error
    _modules[path] = module
    return module


def announced() -> dict[str, EntryPoint]:
    """The entry points of installed packages, by name; none is loaded."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load_entry(entry: EntryPoint) -> type[Method]:
    """The class an entry point announces.

    Raises:
        ConfigError: it cannot be loaded or is no method.
    """
    try:
        found = entry.load()
    except Exception as error:  # whatever another package raises concerns its own method only
        package = entry.dist.name if entry.dist is not None else "a package"
        raise ConfigError(
            f"Method '{entry.name}' of {package} cannot be imported: {entry.value} raises "
            f"{type(error).__name__}: {error}. Install that package again, or choose another method."
        ) from error
    return check_class(found, entry.name)


def check_class(found: object, name: str) -> type[Method]:
    """Refuse what the rest of the package could not use as a method.

    Raises:
        ConfigError: it is no class derived from `Method`, or an unfinished one.
    """
    if not isinstance(found, type) or not issubclass(found, Method):
        kind = f"the class '{found.__name__}'" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigError(f"Method '{name}' should be a class derived from fedrecgel.Method. Found {kind}.")
    missing = [*sorted(found.__abstractmethods__), *(have for have in ("paper", "sends") if not hasattr(found, have))]
    if missing:
        raise ConfigError(f"Method '{name}' should define {', '.join(missing)}. See examples/new_method.py.")
    own = [field for field, hint in vars(found).get("__annotations__", {}).items() if "ClassVar" not in str(hint)]
    if own and "__dataclass_fields__" not in vars(found):
        raise ConfigError(
            f"Method '{name}' should be decorated with @dataclass(frozen=True, kw_only=True). "
            f"Without it {', '.join(own)} would not be hyper-parameters."
        )
    bare = [entry.name for entry in fields(found) if entry.default is MISSING and entry.default_factory is MISSING]
    if bare:
        raise ConfigError(f"Every hyper-parameter of '{name}' should have a default. {', '.join(bare)} has none.")
    return found
