"""What a device needs of a trained method: its tables, a few numbers, and the form in which runtimes compute it.

Each entry of `FORMS` restates the score of one method in the words of `export.scorers`; tests compare the two. A method
is found by its very class: one that derives from it may score otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrecgel.errors import ConfigError
from fedrecgel.methods import METHODS, Method, method_label
from fedrecgel.methods.ease import EASE
from fedrecgel.methods.gfcf import GFCF
from fedrecgel.methods.ials import IALS
from fedrecgel.methods.itemknn import ItemKNN
from fedrecgel.methods.popularity import Popularity
from fedrecgel.methods.spectra import FADE, Spectra
from fedrecgel.numerics.mixtures import Mixture
from fedrecgel.numerics.own_rows import USER_POWER
from fedrecgel.numerics.spectral_scores import ITEM_POWER
from fedrecgel.runs.result import Result

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Form:
    """A trained model as runtimes read it."""

    kind: str
    """A key of `scorers.FORMS`."""
    tables: Mapping[str, Array]
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounded: tuple[str, ...] = ()
    """Tables with a row for each item that may be kept in 8 bits."""


def _popularity(method: Popularity, run: Result) -> Form:
    return Form("popularity", {"counts": _table(run, "counts")})


def _ease(method: EASE, run: Result) -> Form:
    return Form("rows", {"rows": _table(run, "weights")}, {"decay": method.decay}, ("rows",))


def _gfcf(method: GFCF, run: Result) -> Form:
    return Form("rows", {"rows": _table(run, "filter")}, {"decay": method.decay}, ("rows",))


def _itemknn(method: ItemKNN, run: Result) -> Form:
    neighbours = run.shared["neighbours"].numpy().astype(np.int32)
    tables = {"similarity": _table(run, "similarity"), "neighbours": neighbours}
    return Form("neighbours", tables, {"decay": method.decay}, ("similarity",))


def _ials(method: IALS, run: Result) -> Form:
    settings = {"alpha": method.alpha, "reg": method.reg, "nu": method.nu, "decay": method.decay}
    return Form("factors", {"items": _table(run, "item")}, settings, ("items",))


def _spectra(method: Spectra, run: Result) -> Form:
    names: list[str] = [
        name for name in ("counts", "recent", "vectors", "values", "items", "pairs") if name in run.shared
    ]
    chosen = Mixture(*run.shared["mixture"].tolist())
    settings = {
        "alpha": method.alpha,
        "reg": method.reg,
        "item_power": ITEM_POWER,
        "user_power": USER_POWER,
        "fade": FADE,
        "mixture": chosen._asdict(),
        "grid": [mixture._asdict() for mixture in method.grid],
    }
    tables = {name: _table(run, name) for name in names}
    return Form("spectra", tables, settings, tuple(name for name in ("vectors", "items", "pairs") if name in tables))


FORMS: dict[type[Method], Callable[[Any, Result], Form]] = {
    Popularity: _popularity,
    EASE: _ease,
    GFCF: _gfcf,
    ItemKNN: _itemknn,
    IALS: _ials,
    Spectra: _spectra,
}
"""Methods that can be exported."""


def exportable() -> list[str]:
    """Names of the package's methods that can be exported."""
    return [name for name, kind in METHODS.items() if kind in FORMS]


def form_of(run: Result) -> Form:
    """A trained run as a device reads it.

    Raises:
        ConfigError: its method cannot be exported.
    """
    method = run.config.method.build()
    if type(method) not in FORMS:
        raise ConfigError(
            f"Method '{method_label(run.config.method.name)}' cannot be exported: runtimes do not compute its scores. "
            f"Train one that can: {', '.join(exportable())}."
        )
    return FORMS[type(method)](method, run)


def _table(run: Result, name: str) -> Array:
    return run.shared[name].detach().cpu().float().contiguous().numpy()
