"""Federated recommendation with sharpness-aware embedding learning."""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

os.environ.setdefault(
    "OMP_WAIT_POLICY", "PASSIVE"
)  # before torch is loaded: idle threads that spin slow down everything

__all__ = [
    "METHODS",
    "Interactions",
    "Method",
    "Recommendation",
    "Result",
    "Round",
    "Split",
    "compare",
    "load",
    "open",
    "rounds",
    "train",
]

if TYPE_CHECKING:
    from fedrecgel.data.interactions import Interactions
    from fedrecgel.data.load import load
    from fedrecgel.data.split import Split
    from fedrecgel.methods import METHODS
    from fedrecgel.methods.base import Method
    from fedrecgel.report.compare import compare
    from fedrecgel.runs.api import Round, rounds, train
    from fedrecgel.runs.recommend import Recommendation
    from fedrecgel.runs.result import Result
    from fedrecgel.runs.result import open_run as open  # noqa: A004 - read as fedrecgel.open
else:
    _PLACES = {
        "METHODS": ("methods", "METHODS"),
        "Interactions": ("data.interactions", "Interactions"),
        "Method": ("methods.base", "Method"),
        "Recommendation": ("runs.recommend", "Recommendation"),
        "Result": ("runs.result", "Result"),
        "Split": ("data.split", "Split"),
        "compare": ("report.compare", "compare"),
        "load": ("data.load", "load"),
        "open": ("runs.result", "open_run"),
        "Round": ("runs.api", "Round"),
        "rounds": ("runs.api", "rounds"),
        "train": ("runs.api", "train"),
    }

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for, so that `fedrecgel --help` does not wait for torch."""
        if name not in _PLACES:
            if not name.startswith("_") and find_spec(f"{__name__}.{name}"):  # a room, as in fedrecgel.errors
                return import_module(f"{__name__}.{name}")
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _PLACES[name]
        globals()[name] = found = getattr(import_module(f"{__name__}.{module}"), attribute)
        return found

    def __dir__() -> list[str]:
        return sorted(__all__)
