"""What arrives in a round, and adding it up; the order of additions is the order of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.errors import PrivacyError
from fedrecgel.methods.messages import Need, Upload
from fedrecgel.tensors import Factors, Ids, Sealed, Summed, Tensors

COUNT = "#"
"""Begins the names of tensors that no method sends."""
CLIENTS, WEIGHT, LOSS = COUNTS = ("#clients", "#weight", "#loss")
"""Numbers that travel among the tensors of a hidden sum: clients in it, their weights, their losses."""
METRICS = "#metrics"
"""What clients gain by the ranks of their held-out items, in the order of evaluation/metrics.py."""


@dataclass(frozen=True)
class Received:
    """The sums of one round: the memory of one model, not of C models."""

    sums: Tensors
    """Weighted sums over clients; tables over the catalogue are dense."""
    weight: float
    """What all clients weigh together."""
    ids: Ids
    """Who sent it: clients, or the participants of an exchange."""
    weights: Float[Tensor, " C"]
    """What each of these weighs."""
    uploads: list[Upload] | None = None
    """Every upload, where the method needs each and the channel reveals them."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Other sums over the clients, where a channel hides what each of them would say: see `COUNTS`."""

    def total(self) -> Tensors:
        """Weighted sum over clients."""
        return dict(self.sums)

    def mean(self) -> Tensors:
        """Weighted mean over clients."""
        return {name: value / self.weight for name, value in self.sums.items()}

    def each(self) -> list[Upload]:
        """Every upload.

        Raises:
            PrivacyError: the method did not declare that it needs them, or the channel shows sums only.
        """
        if self.uploads is None:
            raise PrivacyError(
                "A server may read single uploads only if its method declares server_needs = Need.EACH and its channel "
                "reveals them. Here it reads sums only; use total() or mean()."
            )
        return self.uploads


def add_up(uploads: Iterable[Upload], n_items: int, needs: Need, *, weighted: bool = False) -> Received:
    """Add up uploads as they arrive; keep them only where each is needed.

    Args:
        uploads: of some clients each.
        n_items: the size of the catalogue.
        needs: what the method's server reads.
        weighted: whether devices have multiplied by their weights already.
    """
    sums: Tensors = {}
    ids: list[Tensor] = []
    weights: list[Tensor] = []
    kept: list[Upload] | None = [] if needs == Need.EACH else None
    weight = 0.0
    for upload in uploads:
        factor = None if weighted else unequal_weights(upload)
        weight += float(upload.weight.sum())
        ids.append(upload.ids)
        weights.append(upload.weight)
        for name, value in upload.dense.items():
            part = total(value, factor)
            if isinstance(part, Sealed):
                sums[name] = sums[name] + part if name in sums else part
                continue
            if name not in sums:
                sums[name] = torch.zeros_like(part)
            sums[name] += part
        for name, value in upload.rows.items():
            if name not in sums:
                sums[name] = value.new_zeros(n_items, value.shape[2])
            scaled = value if factor is None else value * factor[:, None, None]
            sums[name].index_add_(0, upload.at.flatten(), scaled.flatten(0, 1))
        if kept is not None:
            kept.append(upload)
    nobody = torch.zeros(0, dtype=torch.int64)
    return Received(
        sums, weight, torch.cat(ids) if ids else nobody, torch.cat(weights) if weights else torch.zeros(0), kept
    )


def unequal_weights(upload: Upload) -> Float[Tensor, " C"] | None:
    """What each client weighs; None where all weigh one, so that nothing need be multiplied."""
    return None if bool((upload.weight == 1).all()) else upload.weight


def total(value: Tensor | Factors | Summed, weight: Float[Tensor, " C"] | None) -> Tensor:
    """The weighted sum over clients."""
    if isinstance(value, Summed):
        return value.value
    if isinstance(value, Factors):
        return (value if weight is None else value.scale(weight)).total()
    if isinstance(value, Sealed) or not value.is_floating_point():
        found: Tensor = value.sum(0)
        return found.to(torch.int32) if value.dtype == torch.int32 else found  # modulo 2^32, as wide as it was sent
    # A table of 16 bits is summed in full precision.
    if weight is None:
        return value.sum(0, dtype=torch.promote_types(value.dtype, torch.float32))
    weighted: Tensor = torch.tensordot(weight, value.to(weight.dtype), dims=1)
    return weighted


def each_of(value: Tensor | Factors | Summed) -> Tensor:
    """What every client sends.

    Raises:
        PrivacyError: it was summed over clients before it left the devices.
    """
    if isinstance(value, Summed):
        raise PrivacyError("Uploads should be sealed one by one. Found some that were summed before they left.")
    return value.each() if isinstance(value, Factors) else value


def whole(upload: Upload, n_items: int) -> Upload:
    """Uploads with matrices multiplied out and tables whole: which rows were touched shows only in values."""
    rows = {}
    for name, value in upload.rows.items():
        table = value.new_zeros(len(value), n_items, value.shape[2])
        rows[name] = table.scatter_add_(1, upload.at[:, :, None].expand_as(value), value)
    everything = torch.arange(n_items if rows else 0, device=upload.at.device).expand(len(upload.ids), -1)
    return replace(
        upload, dense={name: each_of(value) for name, value in upload.dense.items()}, rows=rows, at=everything
    )
