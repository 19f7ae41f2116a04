"""Random uploads, and their sums taken the slow way."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrecgel.channels.base import RoundSetup
from fedrecgel.methods.messages import Need, Upload
from fedrecgel.tensors import Factors, Tensors

N_ITEMS = 9


def setup_of(needs: Need, cohort: int = 5) -> RoundSetup:
    return RoundSetup(0, torch.arange(cohort), N_ITEMS, needs)


def random_upload(generator: torch.Generator, clients: int, rows: int, weights: Tensor) -> Upload:
    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    dense: dict[str, Tensor | Factors] = {
        "matrix": Factors(random(clients, rows, 3), random(clients, rows, 2)),
        "bias": random(clients, 1, 4),
        "number": random(clients),
    }
    at = torch.randint(0, N_ITEMS, (clients, rows), generator=generator)  # may repeat: padding points to row 0
    return Upload(torch.arange(clients), dense, {"table": random(clients, rows, 2)}, at, weights)


def by_loop(uploads: list[Upload]) -> tuple[Tensors, float]:
    """The weighted sum over clients, one client and one row at a time."""
    sums: Tensors = {
        "matrix": torch.zeros(3, 2),
        "bias": torch.zeros(1, 4),
        "number": torch.zeros(()),
        "table": torch.zeros(N_ITEMS, 2),
    }
    sums = {name: value.double() for name, value in sums.items()}
    weight = 0.0
    for upload in uploads:
        for client, w in enumerate(upload.weight.tolist()):
            weight += w
            for name, value in upload.dense.items():
                if isinstance(value, Factors):
                    sums[name] += w * value.left[client].T @ value.right[client]
                elif isinstance(value, Tensor):
                    sums[name] += w * value[client]
            for row, at in enumerate(upload.at[client].tolist()):
                sums["table"][at] += w * upload.rows["table"][client, row]
    return sums, weight
