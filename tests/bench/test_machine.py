from __future__ import annotations

import pytest

from fedrecgel.bench import machine


def test_peaks_are_those_of_a_processor() -> None:
    assert 1 < machine.fma_gflops(repetitions=1) < 10_000
    assert machine.bandwidth_gb_s(repetitions=1) > 0.1


def test_without_a_compiler_a_matrix_product_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "compile_cached", lambda *_: (_ for _ in ()).throw(FileNotFoundError))
    assert machine.fma_gflops(repetitions=1) > 1
