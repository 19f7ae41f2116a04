"""Spectra equals a loop over clients, and the same formulas on the dense matrix, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedrecgel.data.split import Split, leave_one_out
from fedrecgel.methods.spectra import Spectra
from tests.builders import random_interactions, random_split
from tests.oracles.centralised import counts
from tests.oracles.plain import SEED, run_of, start
from tests.oracles.spectra import SpectraOracle, centralised, public_basis

SMALL: dict[str, Any] = {"rank": 6, "dim": 3, "spectral_rounds": 2, "factor_rounds": 2, "final_rounds": 1}
TOLERANCE = 1e-9
"""Eigenvectors lose some digits that sums have."""
TIMED = random_split(14, 60, candidates=20)
UNTIMED = leave_one_out(random_interactions(14, 60, timed=False), candidates=20)


@pytest.mark.parametrize(
    ("split", "options"),
    [(TIMED, {}), (UNTIMED, {"fraction": 0.6}), (TIMED, {"vote": False}), (UNTIMED, {"pairs": True})],
    ids=["timed", "untimed in parts", "without a vote", "with pairs"],
)
def test_equals_one_client_at_a_time(split: Split, options: dict[str, Any]) -> None:
    method = Spectra(**SMALL, **options)
    oracle = start(SpectraOracle, method, split).compare(TOLERANCE, rounds=method.rounds + 1)
    assert oracle.model.items.any()


def test_equals_the_dense_matrix() -> None:
    method = Spectra(**SMALL, vote=False)
    engine, server = run_of(method, TIMED, method.rounds)
    x = (counts(TIMED) > 0).astype(float)
    wanted = centralised(x, public_basis(method, 60, 14, SEED), 3, method)
    found = {name: value.numpy() for name, value in server.shared.items()}
    np.testing.assert_allclose(found["values"], wanted.values, rtol=TOLERANCE)
    np.testing.assert_allclose(found["counts"][:, 0], wanted.counts)
    np.testing.assert_allclose(found["weights"][:, 0], wanted.weights)
    for name, table in (("vectors", wanted.vectors), ("items", wanted.items)):
        product = found[name] @ found[name].T
        np.testing.assert_allclose(product, table @ table.T, atol=TOLERANCE * np.abs(product).max())
    assert torch.equal(engine.population(), torch.arange(14))
