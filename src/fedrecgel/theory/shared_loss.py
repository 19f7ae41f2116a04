"""The training loss of some clients as a function of the shared tensors: its values, gradient and Hessian products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedrecgel.data.federation import Federation
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.chunks import chunks_of
from fedrecgel.engine.workers import available_cores
from fedrecgel.errors import ConfigError
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.runs.result import Result
from fedrecgel.tensors import Tensors

PARTS = 4
"""Graphs that derivatives are split into, so that several cores work; fixed, so that their number changes no bit."""
CHUNK_ROWS = 2048
"""Rows computed together: their activations fit the cache of a core."""

Move = tuple[tuple[Tensors, float], ...]
"""Directions, and how far to go along each."""


class Rows(NamedTuple):
    """What some clients compare: their user vectors, their items, labels, and weights in the loss."""

    user: Float[Tensor, "C d"]
    items: Int[Tensor, "C K"]
    labels: Float[Tensor, "C K"]
    weights: Float[Tensor, "C K"]


class SharedLoss:
    """Binary cross-entropy of some clients on one more round's examples, mean over examples and then over clients."""

    def __init__(self, result: Result, split: Split, n_clients: int) -> None:
        method = result.config.method.build()
        if not isinstance(method, FedNCF):
            raise ConfigError(
                f"The landscape is drawn over the shared tensors of fedncf and fedrecgel. "
                f"'{result.config.method.name}' has other ones."
            )
        self.method = method
        # In float64: at a magnitude of 1e-4 the rounding of float32 is as large as the rise of the loss.
        self.shared = {name: value.double() for name, value in result.shared.items()}
        draws = Draws(result.config.run.seed)
        chosen = np.sort(Draws(0).generator("flatness/clients").permutation(split.n_users)[:n_clients])
        federation = Federation(split, result.config.sampling, torch.float64)
        lengths, order = federation.n_examples(torch.from_numpy(chosen)).sort(descending=True)
        examples = federation.examples(torch.from_numpy(chosen)[order], result.config.run.rounds, draws)
        self.rows = []
        for chunk in chunks_of(lengths, CHUNK_ROWS):
            batch = examples.batch(*chunk)
            weights = batch.row_weights(None) / len(chosen)
            self.rows.append(Rows(result.clients["user"][batch.ids].double(), batch.rows, batch.row_labels, weights))
        n_workers = result.config.local.workers or available_cores()
        self._workers = ThreadPoolExecutor(n_workers, initializer=torch.set_num_threads, initargs=(1,))

    def term(self, shared: Tensors, rows: Rows) -> Float[Tensor, ""]:
        """The part of some clients in the loss; `shared` is prepared."""
        logits = self.method.backbone.scores(shared, rows.user, rows.items)
        return binary_cross_entropy_with_logits(logits, rows.labels, rows.weights, reduction="sum")

    def total(self, shared: Tensors, rows: Sequence[Rows]) -> Float[Tensor, ""]:
        """The sum of such parts."""
        prepared = self.method.backbone.prepare(shared)
        return torch.stack([self.term(prepared, some) for some in rows]).sum()

    def value(self, shared: Tensors) -> float:
        """The loss."""
        with torch.no_grad():
            return float(self.total(shared, self.rows))

    def values(self, moves: Sequence[Move]) -> list[float]:
        """The loss at many points around the model, several at a time."""
        return list(self._workers.map(lambda move: self.value(move_by(self.shared, *move)), moves))

    def gradient(self) -> Tensors:
        """At the model."""
        return self._sum_over_parts(
            lambda leaves, rows: torch.autograd.grad(self.total(leaves, rows), list(leaves.values()))
        )

    def hessian_times(self, direction: Tensors) -> Tensors:
        """H v at the model, by differentiating the gradient along v."""

        def differentiate(leaves: Tensors, rows: Sequence[Rows]) -> tuple[Tensor, ...]:
            gradients = torch.autograd.grad(self.total(leaves, rows), list(leaves.values()), create_graph=True)
            slope = torch.stack([(g * direction[name]).sum() for name, g in zip(leaves, gradients, strict=True)]).sum()
            return torch.autograd.grad(slope, list(leaves.values()))

        return self._sum_over_parts(differentiate)

    def _sum_over_parts(self, derive: Callable[[Tensors, Sequence[Rows]], tuple[Tensor, ...]]) -> Tensors:
        """The sum of a derivative of each part of the clients, taken at the model."""

        def of_part(rows: Sequence[Rows]) -> tuple[Tensor, ...]:
            return derive({name: value.detach().requires_grad_() for name, value in self.shared.items()}, rows)

        found = list(self._workers.map(of_part, self._parts()))
        return {name: torch.stack(parts).sum(0) for name, *parts in zip(self.shared, *found, strict=True)}

    def _parts(self) -> list[list[Rows]]:
        """The clients in a few parts of about equal work."""
        done = [0, *accumulate(rows.items.numel() for rows in self.rows)]
        parts: list[list[Rows]] = [[] for _ in range(PARTS)]
        for before, rows in zip(done, self.rows, strict=False):
            parts[before * PARTS // done[-1]].append(rows)
        return [part for part in parts if part]


def move_by(shared: Tensors, *steps: tuple[Tensors, float]) -> Tensors:
    """θ + Σ a d."""
    moved = dict(shared)
    for along, length in steps:
        moved = {name: torch.add(value, along[name], alpha=length) for name, value in moved.items()}
    return moved
