"""Histories from sums of spectra: what `spectra` sends in S1 is a product with a basis that the server chose.

Of a cohort, Z = S Q is known, with S = Σ aᵤ aᵤᵀ and the server's own Q. Where fewer items occur than Q has columns, S
itself follows, and it says which items belong to one user. The attacker is given one item of each user, as from a
public review, and guesses the others; anybody can do that from what goes with what among other users, so that is the
guess to beat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.audit.guesses import Finding, Histories, judge
from fedrecgel.audit.inference import MOST_COHORTS, WATCHED
from fedrecgel.audit.scene import Scene
from fedrecgel.methods import spectral_start
from fedrecgel.tensors import Tensors

RIDGE = 1e-6
"""Of the largest eigenvalue: rounding would decide smaller ones."""


def basis_of(scene: Scene, *, start: bool) -> Tensor | None:
    """The server's Q, where the method itself sums spectra, or its start does."""
    return scene.first_server(start=True).shared.get(spectral_start.BASIS if start else "vectors")


def attack_spectra(scene: Scene, n: int, basis: Tensor) -> Finding:
    """Guess histories from S0 and S1 of a cohort of n."""
    guesses, truth, common = [], [], []
    histories, seeds = scene.histories, np.random.default_rng(scene.config.run.seed)
    turns = min(MOST_COHORTS, max(2, -(-WATCHED // n)))
    for turn, (counts, spectrum) in enumerate(scene.cohorts(n, turns, rounds=2, start=True)):
        pairs = recover_pairs(counts, spectrum, basis)
        for client in scene.some_clients(n, turn)[:WATCHED].tolist():
            own = histories.of(client)
            known = int(seeds.choice(sorted(own)))
            truth.append(own)
            guesses.append(_beside(known, pairs.beside(known), histories, client))
            common.append(_beside(known, _others(histories, client, known), histories, client))
    return judge(guesses, common, truth)


@dataclass(frozen=True)
class Pairs:
    """How strongly items of a cohort go with each other: S = left rightᵀ, never built as a whole."""

    items: list[int]
    left: Float[Tensor, "m k"]
    right: Float[Tensor, "m k"]

    def beside(self, item: int) -> dict[int, float]:
        """All items of the cohort by how strongly they go with this one; empty if it does not occur."""
        if item not in self.items:
            return {}
        at = self.items.index(item)
        both = self.left @ self.right[at] + self.right @ self.left[at]
        return dict(zip(self.items, (both.abs() / 2).tolist(), strict=True))


def recover_pairs(counts: Tensors, spectrum: Tensors, basis: Tensor) -> Pairs:
    """S from Z = S Q on the items that occur: min ‖S Q - Z‖ with a small ridge is Z (QᵀQ + λ I)⁻¹ Qᵀ."""
    support = (counts["counts"].sum(1) > 0.5).nonzero()[:, 0]
    z, q = spectrum["spectrum"][support].double(), basis[support].double()
    gram = q.mT @ q
    gram.diagonal().add_(RIDGE * float(torch.linalg.matrix_norm(gram, 2)))
    return Pairs(support.tolist(), torch.linalg.solve(gram, z.mT).mT, q)


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
