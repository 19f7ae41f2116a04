"""Spectra from its formulas: one client at a time with plain loops, and once more with the dense user-item matrix."""

from __future__ import annotations

from functools import cache, partial
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedrecgel.draws import Draws
from fedrecgel.methods.messages import Server
from fedrecgel.methods.spectra import Spectra
from fedrecgel.numerics.mixtures import GRID, GRID_WITH_PAIRS, Mixture
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors
from tests.oracles.plain import Devices, Oracle

Array = npt.NDArray[np.float64]


class Rows(NamedTuple):
    """What one device knows: its items and how many of them came later."""

    items: list[int]
    later: list[int] | None


class Model(NamedTuple):
    """What is downloaded."""

    counts: Array
    recent: Array
    weights: Array
    vectors: Array
    values: Array
    items: Array
    pairs: Array


class SpectraOracle(Oracle):
    """A server that adds up and devices that score, written out."""

    def __init__(self, method: Spectra, shared: Tensors, state: State) -> None:
        self.method = method
        vectors, values, items = (shared[name].numpy().copy() for name in ("vectors", "values", "items"))
        none = np.zeros(len(items))
        self.model = Model(none, none, none, vectors, values, items, np.zeros((len(items), len(items))))
        self.all_counted = [none, none, none]
        self.grid = GRID_WITH_PAIRS if method.pairs else GRID
        self.mixture = self.grid[0]
        self.devices: Devices | None = None
        before = ["counts", *["turn"] * (method.spectral_rounds - 1), "end", *["factors"] * method.factor_rounds]
        after = ["end", *["factors"] * method.final_rounds]
        if method.pairs:
            before, after = [*before, "pairs"], [*after, "pairs"]
        self.stages = [*before, "vote", *after] if method.vote else before
        self.n_held_back = len(before) + 1 if method.vote else 0
        self.sums: dict[str, Array] = {}
        self.answers = 0

    @property
    def shared(self) -> Tensors:  # type: ignore[override]
        """What has one sign only."""
        found = {name: getattr(self.model, name)[:, None] for name in ("counts", "recent", "weights")}
        found |= {"values": self.model.values, "mixture": np.array(self.mixture)}
        return {name: torch.from_numpy(value) for name, value in found.items()}

    def train(self, cohort: list[int], devices: Devices, round: int) -> None:
        """Add the cohort's terms; the server's step where the sum is complete."""
        self.devices = devices
        n_parts = int(np.ceil(1 / self.method.fraction))
        number, part = round // n_parts, round % n_parts
        stage = self.stages[number] if number < len(self.stages) else "factors"
        if part == 0:
            self.sums, self.answers = {}, 0
        for client in cohort:
            self.answers += 1
            for name, term in self.terms(client, stage, held_back=number < self.n_held_back).items():
                self.sums[name] = self.sums.get(name, 0) + term
        if part == n_parts - 1:
            n_clients = devices.federation.n_clients
            self.step(stage, {name: n_clients / self.answers * value for name, value in self.sums.items()}, n_clients)

    def rows(self, client: int) -> Rows:
        """All own rows."""
        assert self.devices is not None
        train = self.devices.federation.split.train
        own = slice(train.ptr[client], train.ptr[client + 1])
        return Rows(train.items[own].tolist(), None if train.recency is None else train.recency[own].tolist())

    def parted(self, client: int) -> tuple[Rows, int | None]:
        """The rows without the one held back, and that one."""
        assert self.devices is not None
        items, later = self.rows(client)
        if len(items) == 1:
            return Rows(items, later), None
        if later is not None:
            place = later.index(0)
            rest = [k - 1 for k in later if k > 0]
        else:
            chance = self.devices.draws.uniform("held-back", 0, np.array([client]), np.array([0]))[0]
            place, rest = int(chance * len(items)), None
        return Rows([item for item in items if item != items[place]], rest), items[place]

    def terms(self, client: int, stage: str, *, held_back: bool) -> dict[str, Array]:
        """What one client sends."""
        everything, (fewer, held) = self.rows(client), self.parted(client)
        own = fewer if held_back else everything
        counts, _, _, vectors, _, y, _ = self.model
        n_items, m = len(counts), len(own.items)
        if stage == "counts":
            found = np.zeros((6, n_items))
            for row, rows in enumerate((own, everything)):
                for item, weight in zip(rows.items, weights(rows, 0.5), strict=True):
                    found[3 * row : 3 * row + 3, item] = 1, weight, len(rows.items) ** -0.25
            return {"counts": found}
        if stage in ("turn", "end"):
            a = np.zeros(n_items)
            for item in own.items:
                a[item] = m**-0.25 * max(counts[item], 1) ** -0.25  # Eq. 1
            return {"images": np.outer(a, a @ vectors)}
        if stage == "factors":
            p = fold_in(own.items, y, self.method, [1.0] * m)
            targets, more = np.zeros_like(y), self.method.alpha * m**-0.25
            for item in own.items:
                targets[item] = p * (1 + more - more * (p @ y[item]))  # Eq. 5
            return {"targets": targets, "gram": np.outer(p, p), "heavy": m * m**-0.25 * np.outer(p, p)}
        if stage == "pairs":
            x = np.zeros(n_items)
            x[own.items] = 1
            return {"pairs": m**-0.5 * np.outer(x, x)}  # Eq. 11
        votes, parts = np.zeros(len(self.grid)), cache(partial(self.parts, own))
        for number, mixture in enumerate(self.grid):
            if held is not None:
                scores = np.array(mixture.weights) @ parts(mixture.strength, mixture.decay)
                votes[number] = gain(scores, held, own.items)  # Eq. 10
        return {"votes": votes}

    def step(self, stage: str, sums: dict[str, Array], n_clients: int) -> None:
        """What the server does with a complete sum."""
        counts, recent, heavy, vectors, values, y, pairs = self.model
        if stage == "counts":
            counts, recent, heavy, *self.all_counted = sums["counts"]
        elif stage == "turn":
            vectors = np.linalg.qr(sums["images"])[0]
        elif stage == "end":
            vectors, values = eigen(sums["images"], vectors)
            if not y.any():
                y = first_factors(vectors, values, counts, y.shape[1])
        elif stage == "factors":
            y = item_step(y, sums["targets"], sums["gram"], sums["heavy"], heavy, n_clients, self.method)
        elif stage == "pairs":
            pairs = sums["pairs"]
        else:
            votes = sums["votes"].tolist()
            self.mixture = self.grid[next(g for g, vote in enumerate(votes) if vote > (1 - 1e-6) * max(votes))]
            counts, recent, heavy = self.all_counted
        self.model = Model(counts, recent, heavy, vectors, values, y, pairs)

    def score(self, own: Rows, mixture: Mixture) -> Array:
        """Eq. 7, every score of the catalogue at once."""
        return np.asarray(np.array(mixture.weights) @ self.parts(own, mixture.strength, mixture.decay))

    def parts(self, own: Rows, strength: float, decay: float) -> Array:
        """Eq. 8, 9, 12 and 13, standardised."""
        counts, recent, _, vectors, values, y, pairs = self.model
        x = np.zeros(len(counts))
        fading = weights(own, decay)
        for item, weight in zip(own.items, fading, strict=True):
            x[item] = weight * max(counts[item], 1) ** -0.25
        response = values / (values + strength * values[0]) if values[0] > 0 else 0 * values
        filtered = ((x @ vectors) * response) @ vectors.T
        folded = y @ fold_in(own.items, y, self.method, fading)
        popular = np.log(counts + 1)
        usual = recent.sum() / counts.sum() if counts.any() else 1.0
        fresh = np.log((recent + usual) / (counts + 1))  # Eq. 13
        damping = np.maximum(counts, 1) ** -0.25
        together = ((x * damping) @ pairs) * damping  # Eq. 12
        return np.array([z(part) for part in (filtered, folded, popular, fresh, together)])

    def scores(self, client: int) -> Tensor:
        """With all own rows."""
        return torch.from_numpy(self.score(self.rows(client), self.mixture))

    def private(self, client: int) -> Tensors:
        """Nothing."""
        return {}

    def more(self, server: Server, state: State) -> dict[str, tuple[Tensor, Tensor]]:
        """What does not depend on the signs of eigenvectors."""
        pairs = {"vectors": self.model.vectors, "items": self.model.items}
        return {
            name: (server.shared[name] @ server.shared[name].mT, torch.from_numpy(wanted @ wanted.T))
            for name, wanted in pairs.items()
        }


def weights(rows: Rows, decay: float) -> list[float]:
    """How much each own item counts."""
    return [1.0] * len(rows.items) if rows.later is None else [(1 + later) ** -decay for later in rows.later]


def fold_in(items: list[int], y: Array, method: Spectra, fading: list[float]) -> Array:
    """Eq. 4 with the confidence of every item written out."""
    confidence, wanted = np.ones(len(y)), np.zeros(len(y))
    more = method.alpha * len(items) ** -0.25 * np.array(fading)
    confidence[items], wanted[items] = 1 + more, 1
    left = y.T @ np.diag(confidence) @ y + method.reg * (len(y) + more.sum()) * np.eye(y.shape[1])
    return np.asarray(np.linalg.solve(left, y.T @ (confidence * wanted)))


def eigen(images: Array, basis: Array) -> tuple[Array, Array]:
    """Eq. 2, with the symmetric root."""
    core = basis.T @ images
    values, rotation = np.linalg.eigh((core + core.T) / 2)
    values = np.maximum(values, 1e-6 * values.max())
    root = rotation @ np.diag(values**-0.5) @ rotation.T
    vectors, roots, _ = np.linalg.svd(images @ root, full_matrices=False)
    return vectors, roots**2


def first_factors(vectors: Array, values: Array, counts: Array, dim: int) -> Array:
    """Eq. 3."""
    y = np.maximum(counts, 1)[:, None] ** 0.25 * vectors[:, :dim] * np.sqrt(values[:dim] / values[0])
    return np.asarray(y * 0.5 / np.sqrt(np.mean([row @ row for row in y])))


def item_step(
    y: Array, targets: Array, gram: Array, heavy: Array, heaviness: Array, n_clients: int, method: Spectra
) -> Array:
    """Eq. 6, one item after another."""
    found, shape = y.copy(), heavy / heaviness.sum()
    for item, row in enumerate(y):
        penalty = method.reg * (n_clients + method.alpha * heaviness[item])
        residual = targets[item] - gram @ row - penalty * row
        left = gram + method.alpha * heaviness[item] * shape + penalty * np.eye(len(row))
        found[item] = row + method.step * np.linalg.solve(left, residual)
    return found


def z(scores: Array) -> Array:
    """Standardised over the catalogue."""
    if np.ptp(scores) <= 1e-12 * np.abs(scores).max():
        return np.zeros_like(scores)
    return np.asarray((scores - scores.mean()) / scores.std())


def gain(scores: Array, target: int, known: list[int]) -> float:
    """NDCG@10 of the target among items that are not known, and its expectation among 99 that are drawn from them."""
    gaps = np.delete(scores, [*known, target]) - scores[target]
    rank = (gaps > 1e-4).sum() + 0.5 * (np.abs(gaps) <= 1e-4).sum()
    among_all = 1 / np.log2(rank + 2) if rank < 10 else 0.0
    p = rank / len(gaps)
    chances = [comb(99, above) * p**above * (1 - p) ** (99 - above) for above in range(10)]
    return float(among_all + sum(chance / np.log2(above + 2) for above, chance in enumerate(chances)))


def centralised(x: Array, basis: Array, dim: int, method: Spectra) -> Model:
    """S0, S1 and S2 on the dense matrix of all histories: no client, no upload, no sum."""
    counts, weights = x.sum(0), x.sum(1)[:, None] ** -0.25 * x
    a = weights * np.maximum(counts, 1) ** -0.25
    similarity = a.T @ a
    for _ in range(method.spectral_rounds - 1):
        basis = np.linalg.qr(similarity @ basis)[0]
    vectors, values = eigen(similarity @ basis, basis)
    y = first_factors(vectors, values, counts, dim)
    more = method.alpha * weights
    for _ in range(method.factor_rounds):
        p = np.array([fold_in(np.flatnonzero(row).tolist(), y, method, [1.0] * int(row.sum())) for row in x])
        gradient = (x + more - more * (p @ y.T)).T @ p
        heavy = p.T @ (weights.sum(1)[:, None] * p)
        y = item_step(y, gradient, p.T @ p, heavy, weights.sum(0), len(x), method)
    return Model(counts, counts, weights.sum(0), vectors, values, y, a.T @ a)


def public_basis(method: Spectra, n_items: int, n_clients: int, seed: int) -> Array:
    """The Q everybody can draw."""
    rank = min(method.rank, n_items, n_clients)
    return np.asarray(np.linalg.qr(Draws(seed).generator("init/basis").normal(size=(n_items, rank)))[0])
