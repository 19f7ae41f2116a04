"""Channels: what happens to an upload on its way, and how much of it the server gets to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.channels.bfv import Encrypted
from fedrecgel.channels.fixedpoint import FixedPointSettings
from fedrecgel.errors import PrivacyError
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Download, Inbox, Method, Need, Server, Upload
from fedrecgel.tensors import Factors, Summed, Tensors


@runtime_checkable
class Channel(Protocol):
    """One way from devices to the server."""

    @property
    def name(self) -> str:
        """As it is called in configs and results."""

    @property
    def reveals(self) -> Need:
        """The most the server sees."""

    def close(self, server: Server) -> Server:
        """Before training, or after `opened`: the server's state as the server may hold it."""

    def open(self, down: Download) -> Download:
        """On the device: what was downloaded, readable."""

    def opened(self, server: Server) -> Server:
        """In a simulator, which plays all devices: the state as it is written to files; `close` takes it back."""

    def seal(self, upload: Upload, n_items: int, round: int) -> Upload:
        """On the device: clip, add noise, mask or encrypt."""

    def fold(self, upload: Upload, needs: Need) -> Upload:
        """In a simulator, while others still train: sum over these clients what may be summed before it arrives."""

    def collect(self, uploads: Iterable[Upload], n_items: int, needs: Need) -> Inbox:
        """On the server: receive the uploads of a round, keeping no more than `needs`."""


class Plain:
    """No protection: the server sees every upload. Sums are taken as uploads arrive."""

    name = "plain"
    reveals = Need.EACH

    def close(self, server: Server) -> Server:
        """As it is."""
        return server

    def open(self, down: Download) -> Download:
        """As it is."""
        return down

    def opened(self, server: Server) -> Server:
        """As it is."""
        return server

    def seal(self, upload: Upload, n_items: int, round: int) -> Upload:
        """As it is."""
        return upload

    def fold(self, upload: Upload, needs: Need) -> Upload:
        """Sum network gradients, which are much smaller as a sum than as factors."""
        if needs == Need.EACH:
            return upload
        weight = _unequal_weights(upload)
        return replace(upload, dense={name: Summed(_total(v, weight)) for name, v in upload.dense.items()})

    def collect(self, uploads: Iterable[Upload], n_items: int, needs: Need) -> Inbox:
        """Add up; keep the uploads themselves only for a method that needs each."""
        inbox = PlainInbox(n_items, keep=needs == Need.EACH)
        for upload in uploads:
            inbox.add(upload)
        return inbox


class PlainInbox:
    """Running sums of one round: the memory of one model, not of C models."""

    def __init__(self, n_items: int, *, keep: bool) -> None:
        self._n_items = n_items
        self._sums: Tensors = {}
        self._weight = 0.0
        self._kept: list[Upload] | None = [] if keep else None

    def add(self, upload: Upload) -> None:
        """Take in the uploads of some clients."""
        weight = _unequal_weights(upload)
        self._weight += float(upload.weight.sum())
        for name, value in upload.dense.items():
            part = _total(value, weight)
            if name not in self._sums:
                self._sums[name] = torch.zeros_like(part)
            self._sums[name] += part
        for name, value in upload.rows.items():
            if name not in self._sums:
                self._sums[name] = value.new_zeros(self._n_items, value.shape[2])
            scaled = value if weight is None else value * weight[:, None, None]
            self._sums[name].index_add_(0, upload.at.flatten(), scaled.flatten(0, 1))
        if self._kept is not None:
            self._kept.append(upload)

    def total(self) -> Tensors:
        """Weighted sum over clients."""
        return dict(self._sums)

    def mean(self) -> Tensors:
        """Weighted mean over clients."""
        return {name: value / self._weight for name, value in self._sums.items()}

    def each(self) -> list[Upload]:
        """Every upload, if the method had declared that it needs them."""
        if self._kept is None:
            raise PrivacyError(
                "A server may read single uploads only if its method declares server_needs = Need.EACH. "
                "Found a method that declares less; use total() or mean()."
            )
        return self._kept


def _unequal_weights(upload: Upload) -> Float[Tensor, " C"] | None:
    """What each client weighs; None where all weigh one, so that nothing need be multiplied."""
    return None if bool((upload.weight == 1).all()) else upload.weight


def _total(value: Tensor | Factors | Summed, weight: Float[Tensor, " C"] | None) -> Tensor:
    """The weighted sum over clients."""
    if isinstance(value, Summed):
        return value.value
    if isinstance(value, Factors):
        return (value if weight is None else value.scale(weight)).total()
    # A table of 16 bits is summed in full precision.
    if weight is None:
        return value.sum(0, dtype=torch.promote_types(value.dtype, torch.float32))
    total: Tensor = torch.tensordot(weight, value.to(weight.dtype), dims=1)
    return total


CHANNELS: dict[str, Callable[[FixedPointSettings], Channel]] = {"plain": lambda numbers: Plain(), "bfv": Encrypted}
"""Channels by name; a library that one needs is imported when it first encrypts."""


def check_channel(method_name: str, method: Method, channel: Channel) -> None:
    """Refuse a method whose server needs to see more than the channel reveals."""
    if method.server_needs <= channel.reveals:
        return
    words = {Need.LINEAR: "only an encrypted sum", Need.SUM: "only their sum", Need.EACH: "every upload"}
    wants = {Need.LINEAR: "their sum", Need.SUM: "their plain sum", Need.EACH: "uploads one by one"}
    channels = [name for name, kind in CHANNELS.items() if method.server_needs <= kind(FixedPointSettings()).reveals]
    others = [name for name, kind in METHODS.items() if kind().server_needs <= channel.reveals]
    raise PrivacyError(
        f"Method '{method_name}' reads {wants[method.server_needs]}, but channel '{channel.name}' reveals "
        f"{words[channel.reveals]}. Use channel {' or '.join(channels)}, or a method that needs less: "
        f"{', '.join(others) or 'none'}."
    )
