from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.retrieval import (
    retrieval_hit_rate,
    retrieval_normalized_dcg,
    retrieval_reciprocal_rank,
)

from fedrecgel.evaluation.metrics import client_metrics, metrics
from fedrecgel.evaluation.ranking import Ranks, TieRule, rank_against


def ranks(*pairs: tuple[int, int]) -> Ranks:
    above, tied = zip(*pairs, strict=True)
    return Ranks(torch.tensor(above), torch.tensor(tied))


def test_hand_made_rankings() -> None:
    found = client_metrics(ranks((0, 0), (4, 0), (5, 0), (9, 0), (10, 0)))
    assert list(found) == ["HR@5", "NDCG@5", "HR@10", "NDCG@10", "MRR"]
    assert found["HR@5"].tolist() == [1, 1, 0, 0, 0]
    assert found["HR@10"].tolist() == [1, 1, 1, 1, 0]
    discounted = [1, 1 / math.log2(6), 1 / math.log2(7), 1 / math.log2(11), 0]
    assert found["NDCG@10"].tolist() == pytest.approx(discounted, abs=1e-14)
    assert found["NDCG@5"].tolist() == pytest.approx([*discounted[:2], 0, 0, 0], abs=1e-14)
    assert found["MRR"].tolist() == pytest.approx([1, 1 / 5, 1 / 6, 1 / 10, 1 / 11], abs=1e-14)


def test_the_mean_is_over_clients() -> None:
    found = metrics(ranks((0, 0), (1, 0), (7, 0), (50, 0)), ks=(1, 100))
    assert found["HR@1"] == 0.25
    assert found["HR@100"] == 1
    assert found["NDCG@100"] == pytest.approx(sum(1 / math.log2(rank + 1) for rank in (1, 2, 8, 51)) / 4)


def test_counts_of_hand_made_scores() -> None:
    found = rank_against(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([[0.9, 0.5, 0.1], [0.5, 0.5, 0.5], [1, 2, 3.0]]))
    assert found.above.tolist() == [1, 0, 3]
    assert found.tied.tolist() == [1, 3, 0]


def brute_force(target: int, others: list[int], k: int, ties: TieRule) -> tuple[float, float, float]:
    """Average over every order in which the items may stand before a stable sort; or the worst of them."""
    places = [
        1 + [own for _, own in sorted(order, key=lambda entry: -entry[0])].index(True)
        for order in permutations([(target, True), *((score, False) for score in others)])
    ]
    if ties == "pessimistic":
        places = [max(places)]
    hits = [float(place <= k) for place in places]
    gains = [hit / math.log2(place + 1) for hit, place in zip(hits, places, strict=True)]
    return tuple(sum(values) / len(places) for values in (hits, gains, [1 / p for p in places]))  # type: ignore[return-value]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2), st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(1, 7), st.booleans())
def test_ties_against_every_permutation(target: int, others: list[int], k: int, pessimistic: bool) -> None:
    ties: TieRule = "pessimistic" if pessimistic else "expected"
    counted = rank_against(torch.tensor([float(target)]), torch.tensor([others], dtype=torch.float32))
    found = metrics(counted, (k,), ties)
    expected = brute_force(target, others, k, ties)
    assert (found[f"HR@{k}"], found[f"NDCG@{k}"], found["MRR"]) == pytest.approx(expected, abs=1e-12)


def test_a_constant_scorer_is_a_coin() -> None:
    constant = rank_against(torch.zeros(3), torch.zeros(3, 99))
    found = metrics(constant)
    assert found["HR@10"] == pytest.approx(0.10, abs=1e-15)
    assert found["HR@5"] == pytest.approx(0.05, abs=1e-15)
    assert found["NDCG@10"] == pytest.approx(sum(1 / math.log2(rank + 1) for rank in range(1, 11)) / 100)
    assert metrics(constant, ties="pessimistic")["HR@10"] == 0
    assert metrics(constant, ties="pessimistic")["MRR"] == pytest.approx(1 / 100)


@pytest.mark.parametrize("ties", ["expected", "pessimistic"])
def test_a_diverged_model_never_looks_good(ties: TieRule) -> None:
    nan = torch.nan
    target = torch.tensor([nan, 1.0, nan])
    others = torch.full((3, 99), nan)
    others[0] = 0.0
    found = client_metrics(rank_against(target, others), (10,), ties)
    assert found["HR@10"].tolist() == [0, 0, 0]
    partly = rank_against(torch.tensor([1.0]), torch.tensor([[nan, nan, 0.0, 1.0]]))
    assert (partly.above.tolist(), partly.tied.tolist()) == ([2], [1])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 120))
def test_against_torchmetrics(seed: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.stack([torch.randperm(100, generator=generator) for _ in range(4)]).float() + 1  # it ignores ≤ 0
    found = client_metrics(rank_against(scores[:, 0], scores[:, 1:]), (k,))
    relevant = torch.zeros(100, dtype=torch.bool)
    relevant[0] = True
    for client, row in enumerate(scores):
        at_k = min(k, 100)
        assert found[f"HR@{k}"][client] == retrieval_hit_rate(row, relevant, top_k=at_k)
        assert float(found[f"NDCG@{k}"][client]) == pytest.approx(
            float(retrieval_normalized_dcg(row, relevant, top_k=at_k)), abs=1e-5
        )
        assert float(found["MRR"][client]) == pytest.approx(float(retrieval_reciprocal_rank(row, relevant)), abs=1e-6)


places = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=20)


@settings(max_examples=200, deadline=None)
@given(places, st.integers(1, 20), st.integers(1, 20))
def test_ndcg_and_hr_move_together(pairs: list[tuple[int, int]], low: int, more: int) -> None:
    """An extra hit lies on a rank from low + 1 to high, so its gain is between the discounts of these two."""
    for small, large in ((low, low + more), (5, 10)):
        found = metrics(ranks(*pairs), (small, large))
        hits = found[f"HR@{large}"] - found[f"HR@{small}"]
        gain = found[f"NDCG@{large}"] - found[f"NDCG@{small}"]
        assert hits / math.log2(large + 1) - 1e-12 <= gain <= hits / math.log2(small + 2) + 1e-12
        if hits > 1e-9 and (small, large) == (5, 10):
            assert 0.289 <= gain / hits <= 0.3563
