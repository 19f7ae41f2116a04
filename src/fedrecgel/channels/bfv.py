"""The encrypting channel: the server adds, scales and subtracts what it cannot read.

Devices share a key pair. They seal the first shared tensors and everything they send; they open what they download.
The server holds ciphertexts from the start to the end of training, and a method's `server_update` runs on them as it
stands, if it is linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedrecgel.channels.ciphertexts import Ciphertexts, Keys
from fedrecgel.channels.fixedpoint import FixedPointSettings, to_floats, to_integers
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.base import Download, Inbox, Need, Server, Upload
from fedrecgel.tensors import Factors, Sealed, Summed, Tensors

INTEGERS, EXPONENT = ".integers", ".exponent"
"""What a checkpoint adds to an opened tensor, for its type may not hold all digits."""


class Encrypted:
    """BFV ciphertexts of fixed-point numbers; the server sees them and, in plain, the clients' weights."""

    name = "bfv"
    reveals = Need.LINEAR

    def __init__(self, numbers: FixedPointSettings) -> None:
        self.numbers = numbers

    @cached_property
    def keys(self) -> Keys:
        """Made by the devices when they first need them; the simulator plays all devices."""
        return Keys()

    def close(self, server: Server) -> Server:
        """Seal the server's first state, or one that `opened` gave.

        Raises:
            PrivacyError: the server keeps tensors that no device downloads, and so none could open.
        """
        exact = {f"{name}{suffix}" for name in server.shared for suffix in (INTEGERS, EXPONENT)}
        if unknown := sorted(set(server.kept) - exact):
            raise PrivacyError(
                f"Behind channel '{self.name}' a server may keep only what devices download. "
                f"Found {', '.join(unknown)}; use channel plain."
            )
        return Server({name: self._closed(name, value, server.kept) for name, value in server.shared.items()})

    def _closed(self, name: str, value: Tensor, kept: Tensors) -> Sealed:
        if name + INTEGERS not in kept:
            return self._sealed(value, tuple(value.shape), [value])
        integers, exponent = kept[name + INTEGERS].cpu().numpy(), int(kept[name + EXPONENT])
        bound = int(np.abs(integers).max(initial=0))
        return Ciphertexts(value, tuple(value.shape), self.keys.encrypt(integers), exponent, bound)

    def _sealed(self, like: Tensor, shape: tuple[int, ...], each: Iterable[Tensor]) -> Ciphertexts:
        parts = [part for own in each for part in self.keys.encrypt(to_integers(own, self.numbers))]
        return Ciphertexts(like, shape, tuple(parts), self.numbers.fraction_bits, self.numbers.bound)

    def open(self, down: Download) -> Download:
        """On a device: decrypt the shared part; a run that is over hands out opened tensors."""
        return replace(down, shared={name: self._opened(value) for name, value in down.shared.items()})

    def _opened(self, value: Tensor) -> Tensor:
        if not isinstance(value, Ciphertexts):
            return value
        flat = to_floats(*self.keys.decrypt(value), value.dtype)
        return flat.view(value.shape).to(value.device)

    def opened(self, server: Server) -> Server:
        """What the simulator, which has all devices' key, writes to files: values, and all digits of them."""
        kept: Tensors = {}
        for name, value in server.shared.items():
            if isinstance(value, Ciphertexts):
                integers, exponent = self.keys.decrypt(value)
                kept |= {name + INTEGERS: torch.from_numpy(integers), name + EXPONENT: torch.tensor(exponent)}
        return Server({name: self._opened(value) for name, value in server.shared.items()}, kept)

    def seal(self, upload: Upload, n_items: int, round: int) -> Upload:
        """On the devices: times the own weight, encrypted; tables whole, for touched rows betray interactions."""
        weight, dense = upload.weight, {}
        for name, value in upload.dense.items():
            each = _each(value).to(weight.dtype)
            weighted = (own * w for own, w in zip(each, weight, strict=True))
            dense[name] = self._sealed(weight, tuple(each.shape), weighted)
        for name, rows in upload.rows.items():
            shape = (len(rows), n_items, rows.shape[2])
            dense[name] = self._sealed(weight, shape, _weighted_tables(rows, upload, n_items))
        return replace(upload, dense=dense, rows={}, at=upload.at[:, :0])

    def fold(self, upload: Upload, needs: Need) -> Upload:
        """Add up the ciphertexts of these clients."""
        return replace(upload, dense={name: Summed(_sum(value)) for name, value in upload.dense.items()})

    def collect(self, uploads: Iterable[Upload], n_items: int, needs: Need) -> Inbox:
        """Add up ciphertexts as they arrive."""
        inbox = SealedInbox()
        for upload in uploads:
            inbox.add(upload)
        return inbox


class SealedInbox:
    """Running sums of ciphertexts."""

    def __init__(self) -> None:
        self._sums: Tensors = {}
        self._weight = 0.0

    def add(self, upload: Upload) -> None:
        """Take in the uploads of some clients, weighted already."""
        self._weight += float(upload.weight.sum())
        for name, value in upload.dense.items():
            part = _sum(value)
            self._sums[name] = self._sums[name] + part if name in self._sums else part

    def total(self) -> Tensors:
        """Weighted sum over clients."""
        return dict(self._sums)

    def mean(self) -> Tensors:
        """Weighted mean over clients."""
        return {name: value / self._weight for name, value in self._sums.items()}

    def each(self) -> list[Upload]:
        """Refused."""
        raise PrivacyError("Behind an encrypting channel a server should read sums only. Use total() or mean().")


def _each(value: Tensor | Factors | Summed) -> Tensor:
    """What every client sends."""
    if isinstance(value, Summed):
        raise PrivacyError("Uploads should be encrypted one by one. Found some that were summed before they left.")
    return value.each() if isinstance(value, Factors) else value


def _weighted_tables(rows: Tensor, upload: Upload, n_items: int) -> Iterator[Tensor]:
    """Every client's whole table times its weight; one at a time, for together they are large."""
    weight = upload.weight
    for own, at, w in zip(rows.to(weight.dtype), upload.at, weight, strict=True):
        yield own.new_zeros(n_items, own.shape[1]).index_add_(0, at, own * w)


def _sum(value: Tensor | Factors | Summed) -> Tensor:
    """The sum over clients of what was sealed."""
    if isinstance(value, Summed):
        return value.value
    if not isinstance(value, Sealed):
        raise PrivacyError("A server behind an encrypting channel should receive sealed tensors. Found open ones.")
    return value.sum(0)
