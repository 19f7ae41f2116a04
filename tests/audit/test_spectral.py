"""Sums of spectra over few clients are their co-occurrences."""

from __future__ import annotations

from typing import Any

import torch
from tests.audit.scenes import scene_of

from fedrecgel.audit.spectral import RIDGE, attack_spectra, basis_of, recover_pairs
from fedrecgel.audit.verdict import audit_run
from fedrecgel.numerics.spectrum import orthonormal


def test_pairs_of_items_are_recovered_exactly_where_few_items_occur() -> None:
    generator = torch.Generator().manual_seed(0)
    basis = orthonormal(torch.randn(50, 12, generator=generator, dtype=torch.float64))
    first, second = torch.zeros(50).double(), torch.zeros(50).double()
    first[[3, 7, 9]], second[[20, 21]] = 1.0, 0.5
    pairs = torch.outer(first, first) + torch.outer(second, second)
    counts = {"counts": ((first > 0) | (second > 0)).double()[:, None]}
    found = recover_pairs(counts, {"spectrum": pairs @ basis}, basis)
    assert found.items == [3, 7, 9, 20, 21]
    assert found.beside(3)[7] > 0.9
    assert abs(found.beside(3)[20]) < 1e-3
    assert found.beside(20)[21] > 0.2
    assert found.beside(4) == {}


def test_the_small_system_gives_what_the_large_one_does() -> None:
    """Ridge regression solved on the side of items, the obvious way, with more items than columns."""
    generator = torch.Generator().manual_seed(1)
    basis = orthonormal(torch.randn(30, 6, generator=generator, dtype=torch.float64))
    z = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    found = recover_pairs({"counts": torch.ones(30, 1)}, {"spectrum": z}, basis)
    gram = basis @ basis.mT
    gram.diagonal().add_(RIDGE * float(torch.linalg.matrix_norm(gram, 2)))
    pairs = torch.linalg.solve(gram, basis @ z.mT).mT
    wanted = (pairs + pairs.mT).abs() / 2
    torch.testing.assert_close(torch.tensor(list(found.beside(4).values())).double(), wanted[4], rtol=1e-4, atol=1e-6)


def test_a_small_cohort_is_read_from_its_spectrum() -> None:
    scene = scene_of("spectra")
    basis = basis_of(scene, start=False)
    assert basis is not None
    assert basis_of(scene, start=True) is basis_of(scene_of("fedmf"), start=False) is None
    found = attack_spectra(scene, 2, basis)
    assert found.advantage >= 0.3
    assert found.f1 > 0.8


def test_a_spectral_start_is_attacked_beside_the_gradients_after_it() -> None:
    """A cohort of two is read from the start's sums; those of gradients are judged as without it."""
    few: dict[str, Any] = {"secagg": {"min_clients": 3}}
    scene = scene_of("fedncf", "secagg", options={"init": "spectral"}, **few)
    basis = basis_of(scene, start=True)
    assert basis is not None
    assert attack_spectra(scene, 2, basis).advantage >= 0.3
    found = audit_run(scene, promotion=False)
    assert found.attacks.keys() == {"cohort_sum", "co_occurrence"}
    plain = scene_of("fedncf", "secagg", options={"init": "normal"}, **few)
    assert found.by_cohort == audit_run(plain, promotion=False).by_cohort
