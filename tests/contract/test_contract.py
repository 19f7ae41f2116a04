"""Every method in the registry passes the contract."""

from __future__ import annotations

from typing import Any

import pytest

from fedrecgel.methods import METHODS
from fedrecgel.testing import check_method


def settings_of(name: str) -> dict[str, Any]:
    return dict(METHODS[name].contract)


PERSONAL = {"fedrap", "gpfedrec"}
"""What these learn is in personal tables of items, which newcomers have not: 15 of 20 are told apart, elsewhere all."""


@pytest.mark.parametrize("name", METHODS)
def test_contract(name: str) -> None:
    kind = METHODS[name]
    newcomers = 0.6 if name in PERSONAL else 0.9
    check_method(kind(**settings_of(name)), learns=kind.kind != "reference", newcomers=newcomers)


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *[
        (name, {**values, **settings_of(name)})
        for name, kind in METHODS.items()
        if name != "fedrecgel"
        for variant, values in kind.variants.items()
        if variant != "released"  # rates and sizes, not another path
    ],
    ("fedncf", {**settings_of("fedncf"), "init": "spectral"}),
    ("fedmf", {"catalogue": 0.1, "lr": 0.05}),
    ("fedmf", {"updates": "batch", "aggregation": "mean"}),
    ("fedncf-weights", {"aggregation": "mean", "batch_size": 16, "gmf_dim": 4, "mlp_dim": 6}),
    ("fedncf-weights", {"batch_size": 16, "epochs": 3, "gmf_dim": 4, "mlp_dim": 6}),
    ("fedrap", {"weight_decay": 0.0, "epochs": 2, "batch_size": 16}),
    ("pfedrec", {"alone": True, "batch_size": 16, "epochs": 2}),
    ("fedrap", {"alone": True}),
    ("perfedrec", {"noise": 0.1, "noise_rows": 3}),
    ("cofedrec", {"anchors": 20, "storage": "bfloat16", "batch_size": 16, "epochs": 2}),
    ("gpfedrec", {"graph": "scalable", "neighbours": 3, "noise": 0.01, "centred": True, "hops": 2}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_contract_of_options(name: str, options: dict[str, Any]) -> None:
    check_method(METHODS[name](**options), learns=False)


SMALL = {"gmf_dim": 8, "mlp_dim": 16, "fraction": 1.0}


@pytest.mark.parametrize("options", [{"order": "user-first"}, METHODS["fedrecgel"].variants["paper"]])
def test_contract_of_variants(options: dict[str, Any]) -> None:
    check_method(METHODS["fedrecgel"](**{**options, **SMALL}), learns=False)
