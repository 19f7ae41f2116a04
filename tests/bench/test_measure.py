from __future__ import annotations

import torch
from tests.builders import random_split

from fedrecgel.bench.measure import Contender, Pace, row_of, spread
from fedrecgel.data.federation import Federation
from fedrecgel.methods.fedrecgel import FedRecGEL


def test_rounds_are_compared_by_the_work_in_them() -> None:
    """A round with twice the examples takes twice the time: that is no slower."""
    ours = Pace(samples=[1000, 2000, 1000], train=[0.5, 1.0, 0.25])
    row = row_of(ours, Pace(samples=[500, 4000], train=[2.5, 20.0]), flops_per_sample=1e6, peak_gflops=10)
    assert row["samples_per_second"] == 2000
    assert row["ratio_to_naive"] == 10
    assert row["percent_of_peak"] == 20  # 2,000 samples of a million operations each are 2 of 10 GFLOP/s
    assert row["train_seconds"] == 0.5
    assert row["evaluate_seconds"] is None


def test_without_the_naive_engine_there_is_no_ratio() -> None:
    row = row_of(Pace(samples=[10], train=[1.0]), Pace(), flops_per_sample=1, peak_gflops=1)
    assert row["ratio_to_naive"] is row["naive_train_seconds"] is None


def test_a_part_of_the_cohort_costs_as_the_whole() -> None:
    cohort, lengths = torch.arange(100, 300), torch.randperm(200)
    some = spread(cohort, lengths, 20)
    assert len(set(some.tolist())) == 20
    assert abs(lengths[some - 100].float().mean() - lengths.float().mean()) < 1
    assert sorted(spread(cohort, lengths, 500).tolist()) == cohort.tolist()


def test_samples_are_distinct_items_of_the_next_round() -> None:
    federation = Federation(random_split(n_users=12, n_items=150))
    contender = Contender(FedRecGEL(gmf_dim=8, mlp_dim=16, fraction=1.0), federation, workers=1)
    contender.train()
    batch = federation.batch(contender.cohort(), 1, contender.draws)
    distinct = sum(len(set(row[keep].tolist())) for row, keep in zip(batch.items, batch.mask, strict=True))
    assert contender.samples() == distinct < int(batch.mask.count_nonzero())
