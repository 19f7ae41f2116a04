"""Every method in the registry passes the contract."""

from __future__ import annotations

from typing import Any

import pytest

from fedrecgel.methods import METHODS
from fedrecgel.testing import check_method

FAST: dict[str, Any] = {"gmf_dim": 8, "mlp_dim": 16, "fraction": 1.0, "server_lr": 0.01}
"""A small model with everyone in every round, so that sixty rounds are enough."""

SETTINGS: dict[str, dict[str, Any]] = {"popularity": {}, "fedncf": FAST, "fedrecgel": FAST}


@pytest.mark.parametrize("name", METHODS)
def test_contract(name: str) -> None:
    kind = METHODS[name]
    check_method(kind(**SETTINGS[name]), learns=kind.kind != "reference")


@pytest.mark.parametrize("options", [{"order": "user-first"}, METHODS["fedrecgel"].variants["paper"]])
def test_contract_of_variants(options: dict[str, Any]) -> None:
    check_method(METHODS["fedrecgel"](**{**FAST, **options}), learns=False)
