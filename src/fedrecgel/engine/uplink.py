"""The way of one round's uploads out of the devices, through a channel's halves; and early sums, to save memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from fedrecgel.channels.base import Channel, DeviceHalf, Preparation, RoundSetup, ServerHalf
from fedrecgel.channels.sums import total, unequal_weights
from fedrecgel.methods.base import Inbox, Need, Upload
from fedrecgel.tensors import Summed


@runtime_checkable
class Uplink(Protocol):
    """Where the uploads of a round go."""

    @property
    def exchanged(self) -> int:
        """Bytes of all messages the participants exchanged before."""

    def leave(self, upload: Upload) -> Upload:
        """What leaves the devices of these clients; called by several threads."""

    def collect(self, uploads: Iterable[Upload]) -> Inbox:
        """Take in what left, in the order of the chunks."""


class Simulated:
    """Every client is a participant of its own, and the server is next door."""

    def __init__(self, channel: Channel, devices: DeviceHalf, server: ServerHalf, setup: RoundSetup) -> None:
        self._devices, self._server = devices, server
        self._secrets: dict[int, bytes] = {}
        self._cohort_known = channel.prepares >= Preparation.COHORT  # else a device knows its own clients only
        if channel.prepares == Preparation.EXCHANGE:
            given = {client: devices.contribute(setup, client) for client in setup.cohort.tolist()}
            setup = replace(setup, messages={client: own.public for client, own in given.items()})
            self._secrets = {client: own.secret for client, own in given.items()}
        self._setup = setup
        self.exchanged = sum(len(message) for message in setup.messages.values())

    def leave(self, upload: Upload) -> Upload:
        """Seal, cover, and sum early what the server would only add."""
        setup = self._setup if self._cohort_known else replace(self._setup, cohort=upload.ids)
        own = {client: self._secrets[client] for client in upload.ids.tolist()} if self._secrets else {}
        sealed = self._devices.cover(self._devices.seal(upload, setup), setup, own)
        return fold(sealed, self._setup.needs, weighted=not self._server.readable)

    def collect(self, uploads: Iterable[Upload]) -> Inbox:
        """As the channel's server does."""
        return self._server.collect(uploads, self._setup)


def fold(upload: Upload, needs: Need, *, weighted: bool) -> Upload:
    """Sum over a chunk of clients what is much smaller as a sum: network gradients, ciphertexts.

    Args:
        upload: of some clients, as it would leave them.
        needs: a server that needs each upload gets them as they are.
        weighted: whether devices have multiplied by their weights already.
    """
    if needs == Need.EACH:
        return upload
    weight = None if weighted else unequal_weights(upload)
    return replace(upload, dense={name: Summed(total(value, weight)) for name, value in upload.dense.items()})
