"""Sums of spectra over few clients are their co-occurrences."""

from __future__ import annotations

import torch
from tests.audit.scenes import scene_of

from fedrecgel.audit.spectral import RIDGE, attack_spectra, recover_pairs, sends_spectra
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
    assert sends_spectra(scene)
    assert not sends_spectra(scene_of("fedmf"))
    found = attack_spectra(scene, 2)
    assert found.advantage >= 0.3
    assert found.f1 > 0.8
