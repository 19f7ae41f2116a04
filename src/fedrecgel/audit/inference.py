"""Histories from single uploads, and from sums over cohorts: passive attacks by a server that only looks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from fedrecgel.audit.guesses import Finding, Histories, judge
from fedrecgel.audit.replay import replay_negatives
from fedrecgel.audit.scene import Rows, Scene, Sight
from fedrecgel.tensors import Tensors

WATCHED = 200
"""Clients that are attacked."""
ROUNDS = 5
"""Rounds in which they are watched: negatives are drawn anew in each."""
DIRECTIONS = 10
"""Of a sum of gradients: one for each user would be right, and more than these find nothing."""
CLEAR = 0.7
"""Share of a table along one direction from which that direction is common to all users."""
COUNT_COLUMNS = 6
"""Tables of so few columns hold counts."""
MOST_COHORTS = 40
"""Of one size."""
WEIGHTS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 30.0)
"""Of a sum beside popularity."""


def attack_each(scene: Scene) -> dict[str, Finding]:
    """All attacks on single uploads."""
    clients = scene.some_clients(WATCHED)
    rounds = list(scene.watch(clients, 1 if scene.method.rounds == 1 else ROUNDS))
    first = rounds[0]
    guesses = {
        "touched_rows": [set(sight.items.tolist()) for sight in first],
        "gradient_sign": [split_by_sign(sight) for sight in first],
    }
    if len(rounds) > 1:
        guesses["intersection"] = intersect(rounds, [sight.client for sight in first])
    if scene.method.samples_negatives:
        k = scene.config.sampling.negatives
        guesses["known_seed"] = [
            replay_negatives(sight.items.tolist(), scene.split.n_items, sight.client, 0, scene.config.run.seed, k)
            for sight in first[: WATCHED // 4]  # dear: every number of positives is tried
        ]
    return {name: judge_clients(scene.histories, found, first) for name, found in guesses.items()}


def judge_clients(histories: Histories, guesses: Sequence[set[int]], sights: Sequence[Sight]) -> Finding:
    """Guesses at these clients beside popularity."""
    clients = [sight.client for sight in sights[: len(guesses)]]
    truth, common = [histories.of(client) for client in clients], [histories.by_popularity(one) for one in clients]
    return judge(guesses, common, truth)


def split_by_sign(sight: Sight) -> set[int]:
    """Positives pull their rows along the user's vector, negatives push: the smaller side are the positives."""
    if not len(sight.items):
        return set()
    rows = max(sight.tables, key=share_along)
    ahead = rows @ leading(rows, 1)[0] > 0
    smaller = ahead if ahead.sum() <= len(ahead) / 2 else ~ahead
    chosen = smaller if smaller.any() else np.ones_like(smaller)  # all on one side: there are no negatives
    return set(sight.items[chosen].tolist())


def leading(rows: Rows, n: int) -> Rows:
    """The directions in which most of these rows lie."""
    square = torch.from_numpy(rows.T @ rows)
    vectors = torch.linalg.eigh(square).eigenvectors.flip(1)
    found: Rows = vectors[:, :n].T.numpy()
    return found


def intersect(rounds: Sequence[Sequence[Sight]], clients: Sequence[int]) -> list[set[int]]:
    """Items whose rows are touched in every round."""
    touched = [{sight.client: set(sight.items.tolist()) for sight in sights} for sights in rounds]
    return [set.intersection(*[one[client] for one in touched]) for client in clients]


def attack_sums(scene: Scene, n: int) -> Finding:
    """Rank items by the sum over a cohort of n and by popularity; every member is guessed to have the highest.

    How much the sum weighs beside popularity is tried out on half of the clients, as an attacker can on invented ones,
    and judged on the others.
    """
    histories, usual = scene.histories, standardise(np.log1p(scene.histories.popularity))
    speaks, found = [], []
    for turn, sums in enumerate(scene.cohorts(n, min(MOST_COHORTS, max(2, -(-WATCHED // n))))):
        speaks.append(standardise(evidence(sums[0], histories.popularity, n)))
        found += [(client, turn) for client in scene.some_clients(n, turn)[:WATCHED].tolist()]
    tried, judged = found[::2], found[1::2]

    def guess(weight: float, of: Sequence[tuple[int, int]]) -> Finding:
        orders = [histories.order(usual + weight * one) for one in speaks]  # the same for all members of a cohort
        guesses = [histories.first(orders[turn], client) for client, turn in of]
        truth = [histories.of(client) for client, _ in of]
        return judge(guesses, [histories.by_popularity(client) for client, _ in of], truth)

    best = max(WEIGHTS, key=lambda weight: guess(weight, tried).f1)
    return guess(best, judged)


def standardise(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """With mean 0 and deviation 1."""
    found: npt.NDArray[np.float64] = (values - values.mean()) / max(float(values.std()), 1e-12)
    return found


def evidence(sums: Tensors, popularity: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.float64]:
    """How much a sum over n clients speaks for each item: counts as they are; of gradients the part along directions.

    A network gives all users' rows one direction; without one, every user has an own. Which way a direction points is
    told by popularity: positives are more popular than drawn negatives.
    """
    n_items = len(popularity)
    tables = [value.double().numpy() for value in sums.values() if value.dim() == 2 and len(value) == n_items]
    if not tables:
        return np.zeros(n_items)
    if sum(table.shape[1] for table in tables) <= COUNT_COLUMNS:
        counts: npt.NDArray[np.float64] = np.concatenate(tables, 1)[:, -1]
        return counts
    usual = np.log1p(popularity) - np.log1p(popularity).mean()
    clearest = max(tables, key=share_along)
    common = share_along(clearest) > CLEAR
    rows = clearest if common else np.concatenate(tables, 1)
    along = rows @ leading(rows, 1 if common else min(n, DIRECTIONS, rows.shape[1])).T
    signs = np.where(usual @ along < 0, -1.0, 1.0)
    strongest: npt.NDArray[np.float64] = (along * signs).max(1)
    return strongest


def share_along(rows: Rows) -> float:
    """Which part of all squares lies along one direction."""
    along = rows @ leading(rows, 1)[0]
    return float(np.square(along).sum() / max(float(np.square(rows).sum()), 1e-300))
