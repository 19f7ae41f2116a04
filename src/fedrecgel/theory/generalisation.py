"""Evidence of generalisation for one run: the gap between its losses, and the bound of Lemma 2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.data.federation import Federation
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.chunks import chunks_of
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.runs.result import Result
from fedrecgel.theory.bound import generalisation_bound


@dataclass(frozen=True)
class Generalisation:
    """Mean binary cross-entropy per example, averaged over clients."""

    train_loss: float
    """On the labelled examples of one more round: training items and fresh negatives."""
    heldout_loss: float
    """On the held-out item and as many of its candidates as a positive has negatives."""
    bound: float | None
    """Right-hand side of Lemma 2, where both radii are positive."""
    worst_case_loss: float | None
    """Its first term: the loss at the worst point within both radii."""
    vacuous: bool | None
    """Whether the bound is above the largest loss of any client, so that it says nothing."""

    @property
    def gap(self) -> float:
        """Held-out minus training loss."""
        return self.heldout_loss - self.train_loss


def generalisation_of(result: Result, split: Split) -> Generalisation | None:
    """Compare losses; None for a method that does not minimise this cross-entropy with one model for all.

    None, too, where users have any number of held-out items: the gap is defined with one for each.
    """
    method = result.config.method.build()
    if split.several or not isinstance(method, FedNCF):
        return None
    bound = None
    if isinstance(method, FedRecGEL) and min(method.rho_co, method.rho_ur) > 0:
        bound = generalisation_bound(result, split)
    return Generalisation(
        _train_loss(result, method, split),
        _heldout_loss(result, method, split),
        None if bound is None else bound.value,
        None if bound is None else bound.worst_case_loss,
        None if bound is None else bound.vacuous,
    )


def _train_loss(result: Result, method: FedNCF, split: Split) -> float:
    federation = Federation(split, result.config.sampling, result.clients["user"].dtype)
    shared, model = method.backbone.prepare(result.shared), method.backbone
    lengths, order = federation.n_examples(torch.arange(split.n_users)).sort(descending=True)
    examples = federation.examples(order, result.config.run.rounds, Draws(result.config.run.seed))
    total = 0.0
    for chunk in chunks_of(lengths, result.config.local.chunk_examples):
        batch = examples.batch(*chunk)
        logits = model.scores(shared, result.clients["user"][batch.ids], batch.rows)
        losses = binary_cross_entropy_with_logits(logits, batch.row_labels, batch.row_weights(None), reduction="none")
        total += float(losses.double().sum())
    return total / split.n_users


def _heldout_loss(result: Result, method: FedNCF, split: Split) -> float:
    negatives = min(result.config.sampling.negatives, split.candidates.shape[1])
    items = np.concatenate([split.test[:, None], split.candidates[:, :negatives]], axis=1).astype(np.int64)
    shared, model = method.backbone.prepare(result.shared), method.backbone
    size = max(1, result.config.local.chunk_scores // (1 + negatives))
    total = 0.0
    for start in range(0, split.n_users, size):
        here = torch.from_numpy(items[start : start + size])
        logits = model.scores(shared, result.clients["user"][start : start + size], here)
        labels = torch.zeros_like(logits)
        labels[:, 0] = 1
        total += float(binary_cross_entropy_with_logits(logits, labels, reduction="none").double().mean(1).sum())
    return total / split.n_users
