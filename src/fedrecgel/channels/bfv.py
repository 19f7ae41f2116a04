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

from fedrecgel.channels.base import Channel, DeviceHalf, RoundSetup, ServerHalf
from fedrecgel.channels.ciphertexts import Ciphertexts, Keys
from fedrecgel.channels.fixedpoint import FixedPointSettings, to_floats, to_integers
from fedrecgel.channels.sums import Received, each_of
from fedrecgel.draws import Draws
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.messages import Download, Need, Server, Upload
from fedrecgel.tensors import Sealed, Tensors

INTEGERS, EXPONENT = ".integers", ".exponent"
"""What a checkpoint adds to an opened tensor, because its type may not hold all digits."""


class Encrypted(Channel):
    """BFV ciphertexts of fixed-point numbers; the server sees them and, in plain, the clients' weights."""

    name = "bfv"
    reveals = Need.LINEAR
    protects = "every number, from a server that works with no device: it adds ciphertexts and sees who takes part"
    on_nodes = False
    section = "fixed_point"
    settings_type = FixedPointSettings

    def device(self, draws: Draws) -> EncryptedDevice:
        """Makes keys from randomness of the library's own."""
        return EncryptedDevice(self.settings)

    def server(self) -> EncryptedServer:
        """Without a key: ciphertexts bring the public context they are added in."""
        return EncryptedServer()


class EncryptedDevice(DeviceHalf):
    """All devices, which share a key pair."""

    def __init__(self, numbers: FixedPointSettings) -> None:
        self.numbers = numbers

    @cached_property
    def keys(self) -> Keys:
        """Made by the devices when they first need them; the simulator plays all devices."""
        return Keys()

    def seal_server(self, server: Server) -> Server:
        """Seal the server's first state, or one that `unseal_server` gave.

        Raises:
            PrivacyError: the server keeps tensors that no device downloads, and so none could open.
        """
        exact = {f"{name}{suffix}" for name in server.shared for suffix in (INTEGERS, EXPONENT)}
        if unknown := sorted(set(server.kept) - exact):
            raise PrivacyError(
                f"Behind channel '{Encrypted.name}' a server may keep only what devices download. "
                f"Found {', '.join(unknown)}; use channel plain."
            )
        return Server({name: self._seal_exactly(name, value, server.kept) for name, value in server.shared.items()})

    def _seal_exactly(self, name: str, value: Tensor, kept: Tensors) -> Sealed:
        if name + INTEGERS not in kept:
            return self._seal(value, tuple(value.shape), [value])
        integers, exponent = kept[name + INTEGERS].cpu().numpy(), int(kept[name + EXPONENT])
        bound = int(np.abs(integers).max(initial=0))
        return Ciphertexts(value, tuple(value.shape), self.keys.encrypt(integers), exponent, bound)

    def _seal(self, like: Tensor, shape: tuple[int, ...], each: Iterable[Tensor]) -> Ciphertexts:
        parts = [part for own in each for part in self.keys.encrypt(to_integers(own, self.numbers))]
        return Ciphertexts(like, shape, tuple(parts), self.numbers.fraction_bits, self.numbers.bound)

    def open_download(self, down: Download) -> Download:
        """On a device: decrypt the shared part; a run that is over hands out opened tensors."""
        return replace(down, shared={name: self._open(value) for name, value in down.shared.items()})

    def _open(self, value: Tensor) -> Tensor:
        if not isinstance(value, Ciphertexts):
            return value
        flat = to_floats(*self.keys.decrypt(value), value.dtype)
        return flat.view(value.shape).to(value.device)

    def unseal_server(self, server: Server) -> Server:
        """What the simulator, which has all devices' key, writes to files: values, and all digits of them."""
        kept: Tensors = {}
        for name, value in server.shared.items():
            if isinstance(value, Ciphertexts):
                integers, exponent = self.keys.decrypt(value)
                kept |= {name + INTEGERS: torch.from_numpy(integers), name + EXPONENT: torch.tensor(exponent)}
        return Server({name: self._open(value) for name, value in server.shared.items()}, kept)

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        """On the devices: times the own weight, encrypted; tables whole: touched rows alone reveal interactions."""
        weight, n_items, dense = upload.weight, setup.n_items, {}
        for name, value in upload.dense.items():
            each = each_of(value).to(weight.dtype)
            weighted = (own * w for own, w in zip(each, weight, strict=True))
            dense[name] = self._seal(weight, tuple(each.shape), weighted)
        for name, rows in upload.rows.items():
            shape = (len(rows), n_items, rows.shape[2])
            dense[name] = self._seal(weight, shape, _weighted_tables(rows, upload, n_items))
        return replace(upload, dense=dense, rows={}, at=upload.at[:, :0])


class EncryptedServer(ServerHalf):
    """Adds up ciphertexts as they arrive."""

    readable = False

    def open_sums(self, received: Received, setup: RoundSetup) -> Received:
        """They stay closed; open ones are refused.

        Raises:
            PrivacyError: a device sent what the server can read.
        """
        if not all(isinstance(value, Sealed) for value in received.sums.values()):
            raise PrivacyError("A server behind an encrypting channel should receive sealed tensors. Found open ones.")
        return received


def _weighted_tables(rows: Tensor, upload: Upload, n_items: int) -> Iterator[Tensor]:
    """Every client's whole table times its weight; one at a time, because together they are large."""
    weight = upload.weight
    for own, at, w in zip(rows.to(weight.dtype), upload.at, weight, strict=True):
        yield own.new_zeros(n_items, own.shape[1]).index_add_(0, at, own * w)
