"""What oracles share: one client's round, the cross-entropy of the published codes, and how close is equal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.data.interactions import Interactions
from fedrecgel.data.split import Split
from fedrecgel.engine.local import LocalEngine
from fedrecgel.methods.base import Server

TOLERANCE = 1e-10
"""Relative to the largest entry, in float64."""


class Batch(NamedTuple):
    """A mini-batch of one client: distinct items, their labels, and their share of the batch mean."""

    items: Tensor
    labels: Tensor
    weights: Tensor


def batches_of(engine: LocalEngine, client: int, round: int, size: int, epochs: int) -> list[Batch]:
    """Everything one client trains on in a round, in order, drawn without any other client beside it."""
    own = engine.federation.batch(torch.tensor([client]), round, engine.draws)
    return [
        Batch(own.rows[0][used], own.row_labels[0][used], weights[0][used])
        for epoch in range(epochs)
        for weights in own.steps(size, round, engine.draws, epoch)
        for used in [weights[0] > 0]
    ]


def mean_bce(logits: Tensor, batch: Batch, saturating: bool) -> Tensor:
    """Mean cross-entropy; where a sigmoid in single precision leaves p (1 - p) < 1e-12, no gradient flows."""
    losses = binary_cross_entropy_with_logits(logits, batch.labels, reduction="none")
    if saturating:
        p = torch.sigmoid(logits.detach().float())
        losses = torch.where(p * (1 - p) < 1e-12, losses.detach(), losses)
    return (batch.weights * losses).sum()


def ragged_split(n_items: int = 60) -> Split:
    """Fourteen clients of 4 to 15 training items; the catalogue is so small that negatives repeat."""
    generator = np.random.default_rng(0)
    sizes = [5, 16, 6, 9, 13, 5, 12, 7, 11, 8, 6, 5, 15, 10]
    users = np.repeat(np.arange(len(sizes)), sizes)
    items = np.concatenate([generator.choice(n_items, size, replace=False) for size in sizes])
    items[-1] = n_items - 1
    frame = {"user": users, "item": items, "timestamp": generator.integers(0, 1000, len(users))}
    return Interactions.from_frame(frame).split(candidates=20)


def assert_close(found: Tensor | None, wanted: Tensor, what: str, tolerance: float = TOLERANCE) -> None:
    """Equal but for another order of summation."""
    assert found is not None, what
    assert found.shape == wanted.shape, what
    assert torch.isfinite(found).all(), what
    gap = float((found - wanted).detach().abs().max())
    assert gap <= tolerance * max(float(wanted.detach().abs().max()), 1e-30), f"{what}: {gap:.2e}"


def catalogue_scores(engine: LocalEngine, server: Server) -> Tensor:
    """Every client's scores of all items."""
    everyone, method = engine.population(), engine.method
    down, history = method.broadcast(server, everyone), engine.federation.history(everyone)
    catalogue = torch.arange(engine.federation.n_items).expand(len(everyone), -1)
    return method.score(engine.store.read(everyone), down, history, catalogue)
