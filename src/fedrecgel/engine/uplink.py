"""The way of one round's uploads out of the devices, through a channel's halves; and early sums, to save memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

from fedrecgel.channels.base import Channel, DeviceHalf, Preparation, RoundSetup, ServerHalf
from fedrecgel.channels.sums import add_up, total, unequal_weights
from fedrecgel.methods.messages import Inbox, Need, Upload
from fedrecgel.tensors import Summed


@runtime_checkable
class Uplink(Protocol):
    """Where the uploads of a round go."""

    @property
    def sent_up(self) -> int:
        """Bytes of all that participants sent beside their uploads."""

    @property
    def sent_down(self) -> int:
        """Bytes of all that was passed on to them, beside what they download."""

    def leave(self, upload: Upload) -> Upload:
        """What leaves the devices of these clients; called by several threads."""

    def collect(self, uploads: Iterable[Upload]) -> Inbox:
        """Take in what left, in the order of the chunks."""


class Simulated:
    """Every client is a participant of its own, and the server is next door."""

    def __init__(self, channel: Channel, devices: DeviceHalf, server: ServerHalf, setup: RoundSetup) -> None:
        self._devices, self._server, self._recovers = devices, server, False
        self._secrets: dict[int, bytes] = {}
        self._kept: dict[int, bytes] = {}
        self._played = channel.plays(len(setup.cohort))
        self._cohort_known = channel.prepares >= Preparation.COHORT  # else a device knows its own clients only
        if channel.prepares >= Preparation.EXCHANGE and self._played:
            setup = self._exchange(setup)
            self._recovers = channel.prepares == Preparation.RECOVERY
        if self._recovers:
            setup = self._share(setup)
        self._setup = setup
        messages = sum(map(len, setup.messages.values()))
        letters = sum(len(letter) for own in setup.envelopes.values() for letter in own.values())
        self.sent_up, self.sent_down = messages + letters, len(setup.cohort) * messages + letters

    def here(self, step: str, participant: int) -> bool:
        """Whether a client answers at a step. A simulator's clients always do; tests play others."""
        return True

    def _exchange(self, setup: RoundSetup) -> RoundSetup:
        """One message of everybody."""
        asked = [client for client in setup.cohort.tolist() if self.here("prepare", client)]
        given = {client: self._devices.contribute(setup, client) for client in asked}
        self._secrets = {client: own.secret for client, own in given.items()}
        return replace(setup, messages={client: own.public for client, own in given.items()})

    def _share(self, setup: RoundSetup) -> RoundSetup:
        """Letters of everybody to some others."""
        sent = {
            client: self._devices.share(setup, client, secret)
            for client, secret in self._secrets.items()
            if self.here("share", client)
        }
        setup = replace(setup, envelopes=pass_on(sent))
        self._secrets = {client: self._secrets[client] for client in sent}
        self._kept = {client: self._devices.retain(setup, client, own) for client, own in self._secrets.items()}
        return setup

    def leave(self, upload: Upload) -> Upload:
        """Seal, cover, and sum early what the server would only add."""
        setup = self._setup if self._cohort_known else replace(self._setup, cohort=upload.ids)
        own = {client: self._secrets[client] for client in upload.ids.tolist()} if self._secrets else {}
        sealed = self._devices.seal(upload, setup)
        if self._played:
            sealed = self._devices.cover(sealed, setup, own)
        return fold(sealed, self._setup.needs, weighted=not self._server.readable)

    def collect(self, uploads: Iterable[Upload]) -> Inbox:
        """As the channel's server does; where it needs one more message to open the sum, after asking for it."""
        if not self._recovers:
            return self._server.collect(uploads, self._setup)
        received = add_up(uploads, self._setup.n_items, self._setup.needs, weighted=not self._server.readable)
        arrived = received.ids.tolist()
        revealed = {
            client: self._devices.reveal(self._setup, client, self._kept.pop(client), arrived)
            for client in arrived
            if self.here("unmask", client)
        }
        self.sent_up += sum(map(len, revealed.values()))
        return self._server.open_sums(received, replace(self._setup, revealed=revealed))


def pass_on(sent: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
    """Letters by receiver, from letters by sender; everybody who sent some is among the receivers."""
    found: dict[int, dict[int, bytes]] = {receiver: {} for receiver in sent}
    for sender, letters in sent.items():
        for receiver in letters.keys() & found.keys():
            found[receiver][sender] = letters[receiver]
    return found


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
