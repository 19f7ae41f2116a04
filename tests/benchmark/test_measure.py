from __future__ import annotations

import torch

from fedrecgel.benchmark.measure import Rounds, spread


def test_ratios_are_taken_within_a_round() -> None:
    """A round with twice the examples takes twice the time: that is no slower."""
    found = Rounds(samples=[1000, 2000, 1000], peak=[10.0, 20.0, 10.0], naive=[5.0, 10.0])
    found.train["plain"] = [0.5, 1.0, 0.25]
    row = found.row("plain", flops=1e6)
    assert row["samples_per_second"] == 2000
    assert row["ratio_to_naive"] == 10
    assert row["percent_of_peak"] == 20  # 2,000 samples of a million operations each are 2 of 10 GFLOP/s
    assert row["train_seconds"] == 0.5
    assert row["evaluate_seconds"] is None


def test_a_part_of_the_cohort_costs_as_the_whole() -> None:
    cohort, lengths = torch.arange(100, 300), torch.randperm(200)
    some = spread(cohort, lengths, 20)
    assert len(set(some.tolist())) == 20
    assert abs(lengths[some - 100].float().mean() - lengths.float().mean()) < 1
    assert sorted(spread(cohort, lengths, 500).tolist()) == cohort.tolist()
