"""Bounds on what one client contributes: its part of a group of tensors is shortened to a largest Euclidean norm."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.channels.sums import each_of, whole
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.messages import Upload
from fedrecgel.tensors import Factors, Summed

TOGETHER = "together"
"""The group of all tensors that have no limit of their own."""
BELOW = 1 - 1e-6
"""A shortened contribution ends a little below its limit, so that rounding does not lift it above."""


@dataclass
class Limits:
    """The largest norm of each group; public, and moved from round to round where it adapts."""

    largest: dict[str, float]

    def group(self, name: str) -> str:
        """The group a tensor belongs to."""
        return name if name in self.largest else TOGETHER

    def spread(self, names: Collection[str], z: float) -> dict[str, float]:
        """Deviation of the noise on each tensor, if z is that on all of them together by what a user may change.

        A user may reach the limit of every group at once: √groups, in units of the limits.
        """
        groups = {self.group(name) for name in names}
        return {name: z * sqrt(len(groups)) * self.largest[self.group(name)] if z else 0.0 for name in names}


def group_norms(upload: Upload, limits: Limits) -> dict[str, Float[Tensor, " C"]]:
    """Each client's norm of every group that it sends; rows of a table must be apart, see `apart`."""
    squares: dict[str, Tensor] = {}
    for name, value in {**upload.dense, **upload.rows}.items():
        each = each_of(value).unsqueeze(1).flatten(1)  # a number per client is a vector, too
        length = torch.linalg.vector_norm(each, dim=1, dtype=torch.promote_types(each.dtype, torch.float32))
        group = limits.group(name)
        squares[group] = squares.get(group, 0) + length.square()
    return {group: square.sqrt() for group, square in squares.items()}


def apart(upload: Upload, n_items: int) -> Upload:
    """The same upload, where no row of a table is sent in two parts: their norms would not add up."""
    used = torch.zeros_like(upload.at, dtype=torch.bool)
    for value in upload.rows.values():
        used |= (value != 0).any(2)
    at = torch.where(used, upload.at, -1).sort(1).values
    repeated = (at[:, 1:] == at[:, :-1]) & (at[:, 1:] >= 0)
    return whole(upload, n_items) if bool(repeated.any()) else upload


def shorten(upload: Upload, norms: Mapping[str, Float[Tensor, " C"]], limits: Limits) -> Upload:
    """Every client's part of a group, no longer than its limit."""
    by = {
        group: torch.where(norm > limits.largest[group], BELOW * limits.largest[group] / norm, 1)
        for group, norm in norms.items()
    }

    def scale(name: str, value: Tensor | Factors | Summed) -> Tensor | Factors:
        factor = by[limits.group(name)]
        if isinstance(value, Factors):
            return value.scale(factor.to(value.left.dtype))
        each = each_of(value)
        return each * factor.to(each.dtype).view(-1, *[1] * (each.dim() - 1))

    dense = {name: scale(name, value) for name, value in upload.dense.items()}
    rows = {name: each_of(scale(name, value)) for name, value in upload.rows.items()}
    return replace(upload, dense=dense, rows=rows)


UNEQUAL = (
    "Under differential privacy every client should weigh 1. Found others: choose a weighting or an aggregation of the "
    "method that counts all clients alike."
)


def check_weights(upload: Upload) -> None:
    """A promise that bounds what a user changes leaves no room for weights.

    Raises:
        PrivacyError: some client does not weigh 1.
    """
    if not bool((upload.weight == 1).all()):
        raise PrivacyError(UNEQUAL)
