"""Metrics of several held-out items, beside every order of equal scores and beside torchmetrics."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.functional.retrieval import (
    retrieval_average_precision,
    retrieval_hit_rate,
    retrieval_normalized_dcg,
    retrieval_recall,
    retrieval_reciprocal_rank,
)

from fedrecgel.evaluation.metrics import METRICS, client_metrics, metrics
from fedrecgel.evaluation.ranking import Ranks, TieRule, rank_against, rank_several

NAMES = ("HR", "NDCG", "Recall", "MAP")


def one_client(relevant: list[float], others: list[float]) -> Ranks:
    targets = torch.tensor([relevant], dtype=torch.float64)
    return rank_several(
        targets, torch.ones_like(targets, dtype=torch.bool), torch.tensor([others], dtype=torch.float64)
    )


def by_definition(order: list[bool], k: int) -> list[float]:
    """HR, NDCG, Recall, MAP at k and MRR of one list, best first, from their textbook formulas."""
    places = [place for place, relevant in enumerate(order, 1) if relevant]
    first = [place for place in places if place <= k]
    gain = sum(1 / math.log2(place + 1) for place in first)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(places)) + 1))
    precisions = [sum(order[:place]) / place for place in first]
    average = sum(precisions) / min(k, len(places))
    return [float(bool(first)), gain / ideal, len(first) / len(places), average, 1 / places[0]]


def over_all_orders(relevant: list[int], others: list[int], k: int, ties: TieRule) -> list[float]:
    """The mean over every order in which the items may stand before a stable sort; or held-out ones last of equals."""
    entries = [*((score, True) for score in relevant), *((score, False) for score in others)]
    if ties == "pessimistic":
        return by_definition([own for _, own in sorted(entries, key=lambda entry: (-entry[0], entry[1]))], k)
    found = [
        by_definition([own for _, own in sorted(order, key=lambda entry: -entry[0])], k)
        for order in permutations(entries)
    ]
    return [sum(values) / len(found) for values in zip(*found, strict=True)]


scores = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None)
@given(scores, scores, st.integers(1, 7), st.sampled_from(["expected", "pessimistic"]))
def test_ties_against_every_permutation(relevant: list[int], others: list[int], k: int, ties: TieRule) -> None:
    found = metrics(one_client([*map(float, relevant)], [*map(float, others)]), (k,), ties)
    assert list(found) == [*(f"{name}@{k}" for name in NAMES), "MRR"]
    assert list(found.values()) == pytest.approx(over_all_orders(relevant, others, k, ties), abs=1e-12)


def torchmetrics_at(row: Tensor, relevant: Tensor, k: int) -> dict[str, float]:
    """The same five; its average precision divides by the hits among the first K, ours by min(K, held-out items)."""
    k = min(k, len(row))
    hits, n = int(relevant[row.topk(k).indices].sum()), int(relevant.sum())
    average = float(retrieval_average_precision(row, relevant, top_k=k)) * hits / min(k, n)
    library: dict[str, Callable[..., Tensor]] = {
        "HR": retrieval_hit_rate,
        "NDCG": retrieval_normalized_dcg,
        "Recall": retrieval_recall,
    }
    found = {name: float(own(row, relevant, top_k=k)) for name, own in library.items()}
    return {**found, "MAP": average, "MRR": float(retrieval_reciprocal_rank(row, relevant))}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 8), st.integers(1, 60))
def test_against_torchmetrics(seed: int, n_relevant: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.stack([torch.randperm(50, generator=generator) for _ in range(4)]).float() + 1
    valid = torch.arange(n_relevant).expand(4, -1) < torch.randint(1, n_relevant + 1, (4, 1), generator=generator)
    counted = rank_several(rows[:, :n_relevant], valid, rows[:, n_relevant:])
    found = client_metrics(counted, (k,))
    for client, row in enumerate(rows):
        own = int(valid[client].sum())
        listed = torch.cat([row[:own], row[n_relevant:]])  # the others are padding
        relevant = torch.arange(len(listed)) < own
        expected = torchmetrics_at(listed, relevant, k)
        ours = {name: float(found[name if name == "MRR" else f"{name}@{k}"][client]) for name in expected}
        assert ours == pytest.approx(expected, abs=1e-5)


def test_ties_against_the_mean_of_torchmetrics_over_orders() -> None:
    relevant, others, k = [2.0, 1.0, 1.0], [2.0, 1.0, 3.0], 3
    found = metrics(one_client(relevant, others), (k,))
    rows = []
    for order in permutations(range(6)):
        listed = torch.tensor([*relevant, *others]) - torch.tensor(order) * 1e-3  # a strict order among equals
        rows.append(torchmetrics_at(listed, torch.arange(6) < 3, k))
    for name in rows[0]:
        mean = sum(row[name] for row in rows) / len(rows)
        assert found[name if name == "MRR" else f"{name}@{k}"] == pytest.approx(mean, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 3), st.integers(1, 6))
def test_one_item_is_ranked_as_before(others: list[int], target: int, k: int) -> None:
    alone = rank_against(torch.tensor([float(target)]), torch.tensor([others]).float())
    counted = one_client([float(target)], [*map(float, others)])
    assert (counted.above.tolist(), counted.tied.tolist()) == (alone.above.tolist(), alone.tied.tolist())
    for ties in ("expected", "pessimistic"):
        ours, single = metrics(counted, (k,), ties), metrics(alone, (k,), ties)
        assert {name: ours[name] for name in single} == pytest.approx(single, abs=1e-14)
        assert ours[f"Recall@{k}"] == ours[f"HR@{k}"]
    assert set(single) == {name.replace("@K", f"@{k}") for name, metric in METRICS.items() if metric.alone}


def test_many_equals_are_counted_without_drawing() -> None:
    """3 held out of 10,000 equals: the first of them has an expected rank, and P(any among 10) is hypergeometric."""
    found = metrics(one_client([0.0] * 3, [0.0] * 9_997), (10,))
    assert found["HR@10"] == pytest.approx(1 - math.comb(9_997, 10) / math.comb(10_000, 10), rel=1e-9)
    assert found["Recall@10"] == pytest.approx(10 / 10_000, rel=1e-9)


def test_left_out_items_and_infinite_scores() -> None:
    inf, nan = torch.inf, torch.nan
    targets = torch.tensor([[1.0, -inf, nan, inf]])
    others = torch.tensor([[2.0, 1.0, -inf, -inf, nan, inf]])
    left_out = torch.tensor([[False, False, True, False, False, False]])
    found = rank_several(targets, torch.ones_like(targets, dtype=torch.bool), others, left_out)
    assert found.above.tolist() == [2 + 1 + 1, 4 + 2, 5 + 3, 1]
    assert found.tied.tolist() == [1, 1, 0, 1]
    assert found.ptr is not None
    assert found.ptr.tolist() == [0, 4]
    diverged = rank_several(torch.full((1, 2), nan), torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 9))
    assert metrics(diverged, (5,))["HR@5"] == 0
