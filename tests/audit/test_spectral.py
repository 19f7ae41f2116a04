"""Sums of spectra over few clients are their co-occurrences."""

from __future__ import annotations

import torch
from tests.audit.scenes import scene_of

from fedrecgel.audit.spectral import attack_spectra, recover_pairs, sends_spectra
from fedrecgel.numerics.spectrum import orthonormal


def test_pairs_of_items_are_recovered_exactly_where_few_items_occur() -> None:
    generator = torch.Generator().manual_seed(0)
    basis = orthonormal(torch.randn(50, 12, generator=generator, dtype=torch.float64))
    first, second = torch.zeros(50).double(), torch.zeros(50).double()
    first[[3, 7, 9]], second[[20, 21]] = 1.0, 0.5
    pairs = torch.outer(first, first) + torch.outer(second, second)
    counts = {"counts": ((first > 0) | (second > 0)).double()[:, None]}
    found = recover_pairs(counts, {"spectrum": pairs @ basis}, basis)
    assert found.keys() == {3, 7, 9, 20, 21}
    assert found[3][7] > 0.9
    assert abs(found[3][20]) < 1e-3
    assert found[20][21] > 0.2


def test_a_small_cohort_is_read_from_its_spectrum() -> None:
    scene = scene_of("spectra")
    assert sends_spectra(scene)
    assert not sends_spectra(scene_of("fedmf"))
    found = attack_spectra(scene, 2)
    assert found.advantage >= 0.3
    assert found.f1 > 0.8
