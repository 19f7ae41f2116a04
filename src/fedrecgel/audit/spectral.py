"""Histories from sums of spectra: what `spectra` sends in S1 is a product with a basis that the server chose.

Of a cohort, Z = S Q is known, with S = Σ aᵤ aᵤᵀ and the server's own Q. Where fewer items occur than Q has columns, S
itself follows, and it says which items belong to one user. The attacker is given one item of each user, as from a
public review, and guesses the others; anybody can do that from what goes with what among other users, so that is the
guess to beat.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from fedrecgel.audit.guesses import Finding, Histories, judge
from fedrecgel.audit.inference import MOST_COHORTS, WATCHED
from fedrecgel.audit.scene import Scene
from fedrecgel.tensors import Tensors

RIDGE = 1e-6
"""Of the largest eigenvalue: rounding would decide smaller ones."""


def sends_spectra(scene: Scene) -> bool:
    """Whether the method sends what this attack is about."""
    return "spectrum" in scene.method.leaves_device()


def attack_spectra(scene: Scene, n: int) -> Finding:
    """Guess histories from S0 and S1 of a cohort of n."""
    guesses, truth, common = [], [], []
    histories, seeds = scene.histories, np.random.default_rng(scene.config.run.seed)
    basis = scene.first_server().shared["vectors"]
    for turn, (counts, spectrum) in enumerate(scene.cohorts(n, min(MOST_COHORTS, max(2, -(-WATCHED // n))), rounds=2)):
        pairs = recover_pairs(counts, spectrum, basis)
        for client in scene.some_clients(n, turn)[:WATCHED].tolist():
            own = histories.of(client)
            known = int(seeds.choice(sorted(own)))
            truth.append(own)
            guesses.append(_beside(known, pairs.get(known, {}), histories, client))
            common.append(_beside(known, _others(histories, client, known), histories, client))
    return judge(guesses, common, truth)


def recover_pairs(counts: Tensors, spectrum: Tensors, basis: torch.Tensor) -> dict[int, dict[int, float]]:
    """For every item of the cohort, how strongly others go with it: S from Z = S Q on the items that occur."""
    support = (counts["counts"].sum(1) > 0.5).nonzero()[:, 0]
    z, q = spectrum["spectrum"][support].double(), basis[support].double()
    gram = q @ q.mT
    gram.diagonal().add_(RIDGE * float(torch.linalg.matrix_norm(gram, 2)))
    found = torch.linalg.solve(gram, q @ z.mT).mT  # min ‖S Q - Z‖
    strength = (found + found.mT).abs() / 2
    items = support.tolist()
    return {item: dict(zip(items, row, strict=True)) for item, row in zip(items, strength.tolist(), strict=True)}


def _beside(known: int, strength: dict[int, float], histories: Histories, client: int) -> set[int]:
    """The known item, and those that go with it most."""
    scores: npt.NDArray[np.float64] = np.zeros(histories.train.n_items)
    for item, value in strength.items():
        scores[item] = value
    scores[known] = np.inf
    return histories.most(scores, client)


def _others(histories: Histories, client: int, known: int) -> dict[int, float]:
    """How many other users have each item, of those who have the known one."""
    train = histories.train
    found: dict[int, float] = {}
    for owner in np.searchsorted(train.ptr, np.flatnonzero(train.items == known), side="right") - 1:
        if owner != client:
            for item in train.items[train.ptr[owner] : train.ptr[owner + 1]].tolist():
                found[item] = found.get(item, 0.0) + 1
    return found
