"""What a device needs of a trained method: its tables, a few numbers, and the form in which runtimes compute it.

Each entry of `FORMS` restates the score of one method in the words of `export.scorers`; tests compare the two. A method
is found by its very class: one that derives from it may score otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedrecgel.data.federation import LEARNT_FROM
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError
from fedrecgel.methods import METHODS, Method, method_label
from fedrecgel.methods.ease import EASE
from fedrecgel.methods.fedmf import STRIDES, FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.gfcf import GFCF
from fedrecgel.methods.ials import IALS
from fedrecgel.methods.itemknn import ItemKNN
from fedrecgel.methods.messages import Problem
from fedrecgel.methods.popularity import Popularity
from fedrecgel.methods.spectra import FADE, Spectra
from fedrecgel.models.gradients import EPSILON
from fedrecgel.numerics.mixtures import Mixture
from fedrecgel.numerics.optim import BETA1, BETA2, EPS
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
    if "pair_sketch" in run.shared:
        raise ConfigError(
            "Hashed co-occurrences cannot be exported: runtimes do not compute them. Train spectra without the "
            "variant 'sketched'."
        )
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


def _fedmf(method: FedMF, run: Result) -> Form:
    if method.catalogue > 0:
        raise ConfigError(
            "With method.catalogue a device learns from all items at once, which runtimes do not compute. Export a run "
            "with catalogue = 0, the default."
        )
    fold_in = _newcomer(method, run) | {
        "kind": "strides",
        "strides": STRIDES,
        "lr": method.lr,
        "reg": method.reg_user,
        "squared": method.loss == "squared",
    }
    tables = {"items": _table(run, "items"), "start": _start(method, run)}
    return Form("dot", tables, {"fold_in": fold_in}, ("items",))


def _fedncf(method: FedNCF, run: Result) -> Form:
    if method.model not in ("neumf", "mf"):
        raise ConfigError(
            f"Of the models of '{run.summary['method']}' neumf and mf can be exported. Found '{method.model}'."
        )
    fold_in = _newcomer(method, run) | {
        "kind": "gradient",
        "lr": method.user_lr,
        "reg": method.reg_user,
        "adam": [BETA1, BETA2, EPS] if method.user_optimiser == "adam" else None,
        "chunk": method.chunk if method.reduction == "chunks" else None,
        "rho": 0.0,
        "epsilon": EPSILON,
    }
    model = method.backbone
    tables = {name: _table(run, name) for name in (*model.tables, *model.network)} | {"start": _start(method, run)}
    vectors = tuple(name for name in model.tables if tables[name].shape[1] > 1)
    return Form(method.model, tables, {"fold_in": fold_in}, vectors)


def _fedrecgel(method: FedRecGEL, run: Result) -> Form:
    if method.g_norm > 0:
        raise ConfigError(
            "With method.g_norm a device needs the norm of all shared tensors to learn its vector, which runtimes do "
            "not compute. Export a run with g_norm = 0, the default."
        )
    form = _fedncf(method, run)
    return replace(form, settings={"fold_in": {**form.settings["fold_in"], "rho": method.rho_ur}})


def _newcomer(method: Method, run: Result) -> dict[str, Any]:
    """How a device draws its examples: the numbers that `runs/fold_in.py` draws for a single newcomer."""
    draws, sampling, rounds = _draws(run), run.config.sampling, range(method.fold_in_rounds)
    nobody = np.zeros(1, dtype=np.int64)

    def begin(purpose: str) -> list[str]:
        return [f"{draws.streams(purpose, number, nobody)[0]:x}" for number in rounds]

    return {
        "rounds": len(rounds),
        "negatives": sampling.negatives if method.samples_negatives else 0,
        "redraw": sampling.redraw,
        "repeats": sampling.repeats,
        "latest": LEARNT_FROM,
        "order": begin("order"),
        "others": begin("negatives"),
    }


def _draws(run: Result) -> Draws:
    return Draws(run.config.run.seed).part("fold-in")


def _start(method: Method, run: Result) -> Array:
    """A newcomer's vector before the first step."""
    problem = Problem(len(run.user_ids), len(run.item_ids))
    start: Array = method.init_clients(problem, torch.zeros(1, dtype=torch.int64), _draws(run))["user"][0].numpy()
    return start


FORMS: dict[type[Method], Callable[[Any, Result], Form]] = {
    Popularity: _popularity,
    EASE: _ease,
    GFCF: _gfcf,
    ItemKNN: _itemknn,
    IALS: _ials,
    Spectra: _spectra,
    FedMF: _fedmf,
    FedNCF: _fedncf,
    FedRecGEL: _fedrecgel,
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
