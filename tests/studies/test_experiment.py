"""The registry, and what every experiment says of itself."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import fedrecgel.studies
from fedrecgel.errors import ConfigError
from fedrecgel.studies import EXPERIMENTS
from fedrecgel.studies.experiment import Document, Experiment, Option, Scope, names_in
from fedrecgel.studies.presets import SETTINGS, Presets


def test_the_registry_is_the_folder() -> None:
    files = [path.stem for path in Path(fedrecgel.studies.__file__).parent.glob("*.py")]
    modules = [import_module(f"fedrecgel.studies.{name}") for name in files if name != "__init__"]
    kinds = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    made = {kind for kind in kinds if issubclass(kind, Experiment) and kind is not Experiment}
    assert set(EXPERIMENTS.values()) == made
    assert all(name == kind.name for name, kind in EXPERIMENTS.items())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_explains_itself(name: str) -> None:
    kind = EXPERIMENTS[name]
    assert all((kind.help, kind.title, kind.about))
    assert kind.settings is None or names_in("setting", kind.settings, SETTINGS)
    assert issubclass(kind.document, Document)
    with pytest.raises(msgspec.ValidationError, match="command"):
        msgspec.json.decode(b"{}", type=kind.document)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_two_experiments_share_a_place(name: str) -> None:
    others = [kind for kind in EXPERIMENTS.values() if kind.name != name]
    assert EXPERIMENTS[name].page_place not in {kind.page_place for kind in others}


def test_an_option_that_is_not_given_has_its_default() -> None:
    kind = EXPERIMENTS["landscape"]
    scope = Scope(Presets(Path("none")), ("demo",), 1, options={"clients": 7})
    assert (kind(scope).option("clients"), kind(scope).option("normalisation")) == (7, "unit,filter")
    assert Option("--seeds-of", "N", "help").name == "seeds_of"


def test_names_are_checked_and_taken_once() -> None:
    assert names_in("fruit", "pear, apple,pear", ["apple", "pear"]) == ("pear", "apple")
    with pytest.raises(ConfigError, match="Did you mean 'apple'"):
        names_in("fruit", "aple", ["apple", "pear"])
