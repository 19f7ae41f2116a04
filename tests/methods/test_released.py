"""The published settings of every method, written down once more: they may not follow the defaults."""

from __future__ import annotations

from typing import Any

import pytest

from fedrecgel.methods import METHODS

NCF = {"fraction": 0.1, "model": "neumf", "gmf_dim": 32, "mlp_dim": 128, "user_lr": 0.1, "server_lr": 1e-3} | {
    "user_optimiser": "adam",
    "server_optimiser": "adam",
    "server_tau": 1e-8,
    "reduction": "chunks",
    "chunk": 128,
    "weighting": "uniform",
    "round_decay": 1.0,
    "reg_user": 0.0,
    "init": "normal",
    "start_popularity": 0.0,
}
LINEAR = {"fraction": 1.0, "dim": 32, "lr": 0.1, "lr_eta": 80.0, "batch_size": 256, "epochs": 1}
PUBLISHED: dict[str, dict[str, Any]] = {
    "fedrecgel": {**NCF, "rho_co": 0.02, "rho_ur": 0.02, "order": "joint", "g_norm": 0.0},
    "fedncf": NCF,
    "fedncf-weights": {"fraction": 0.1, "gmf_dim": 32, "mlp_dim": 128, "lr": 1e-3, "user_lr": 0.1}
    | {"epochs": 2, "batch_size": 128, "aggregation": "mf"},
    "fedmf": {"fraction": 1.0, "dim": 32, "lr": 0.05, "server_lr": 1.0, "reg_user": 1e-4, "reg_item": 1e-4}
    | {"loss": "bce", "updates": "each", "aggregation": "sum", "init": "normal", "repeated": "add"}
    | {"examples": "sampled", "precision": 0.0},
    "perfedrec": {"fraction": 0.1, "dim": 32, "lr": 0.01, "user_lr": 0.01, "local_lr": 0.01, "decay": 1e-5}
    | {"clusters": 5, "propagation": "one-rule", "match_clusters": True, "noise": 0.0, "noise_rows": 100},
    "pfedrec": {**LINEAR, "saturating_bce": True, "unseen": "global", "alone": False},
    "fedrap": {"fraction": 1.0, "dim": 32, "lr_network": 0.5, "lr_items": 200.0, "round_decay": 0.97}
    | {"batch_decay": 0.95, "weight_decay": 1e-4, "lambda_": 0.1, "mu": 0.1, "vary": "tanh", "batch_size": 2048}
    | {"epochs": 10, "tolerance": 1e-4, "saturating_bce": True, "alone": False},
    "cofedrec": {**LINEAR, "clusters": 30, "restarts": 10, "reg": 0.005, "temperature": 0.1}
    | {"base_temperature": 0.5, "anchors": 0, "storage": "full", "saturating_bce": True},
    "gpfedrec": {**LINEAR, "layers": (32, 16, 8), "reg": 1.0, "neighbours": 0, "threshold": 1.0, "hops": 1}
    | {"graph": "exact", "projection": 1024, "centred": False, "native_cosine_distance": False, "noise": 0.0}
    | {"storage": "full", "saturating_bce": True},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_released_variant_is_what_was_published(name: str) -> None:
    kind = METHODS[name]
    method = kind(**kind.variants["released"])  # type: ignore[arg-type]
    assert {key: getattr(method, key) for key in PUBLISHED[name]} == PUBLISHED[name]


def test_every_federated_method_of_a_paper_has_it() -> None:
    """Spectra is this package's own."""
    federated = {name for name, kind in METHODS.items() if kind.kind == "federated"}
    assert federated - {"spectra"} == set(PUBLISHED)
