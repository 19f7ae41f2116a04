"""Channels: what happens to an upload on its way, and how much of it the server gets to see.

A channel makes two halves. The device half clips, adds noise, masks or encrypts, and holds whatever secrets that takes;
the server half adds up what arrives. They are separate objects, and neither leads to the other. Both engines run
the same halves: the local engine plays all devices with one device half; under Flower every node has its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Int
from torch import Tensor

from fedrecgel.channels.sums import Received, add_up
from fedrecgel.draws import Draws
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Download, Inbox, Need, Server, Upload
from fedrecgel.tensors import Ids, Tensors


class Preparation(IntEnum):
    """What devices must learn of a round before they seal; each step costs what it sends."""

    ALONE = 0
    """Nothing: of the cohort, a node knows its own clients only."""
    COHORT = 1
    """The whole cohort."""
    EXCHANGE = 2
    """The cohort, and one public message of every participant."""
    RECOVERY = 3
    """The same, then a letter of every participant to some others; and when uploads have arrived, one more message each
    that opens their sum, whoever is missing by then."""


@dataclass(frozen=True)
class RoundSetup:
    """What both halves know of a round; nothing in here is secret.

    A participant is a client in the simulator and a node under Flower. It goes by the number of its first client.
    """

    round: int
    cohort: Ids
    """The clients of this round; see `Preparation.ALONE`."""
    n_items: int
    needs: Need
    """What the method's server reads."""
    messages: Mapping[int, bytes] = field(default_factory=dict)
    """The public message of each participant, where there was an exchange."""
    magnitude: float = 8.0
    """No number that a client sends is larger, at usual settings."""
    smallest: int = 1
    """Clients that a sum must cover to hide each of them, as the method states."""
    envelopes: Mapping[int, Mapping[int, bytes]] = field(default_factory=dict)
    """By receiver and sender, letters between participants; closed to everybody else. Whoever sent any is a receiver. A
    node knows what is in its own only."""
    revealed: Mapping[int, bytes] = field(default_factory=dict)
    """What each participant said when uploads had arrived."""

    @classmethod
    def of(
        cls,
        method: Method,
        round: int,
        cohort: Ids,
        n_items: int,
        messages: Mapping[int, bytes] | None = None,
        shared: Tensors | None = None,
    ) -> RoundSetup:
        """A round of a method, in which clients receive this, where it is known."""
        least = method.hides_from(shared or {}).sum
        return cls(round, cohort, n_items, method.server_needs, messages or {}, method.magnitude, least)


@dataclass(frozen=True)
class Plan:
    """What a channel may know of a run before its first round."""

    n_clients: int
    fraction: float
    """Share of clients that the method asks for each round."""
    rounds: int
    names: frozenset[str]
    """What leaves a device."""
    seed: int
    on_nodes: bool = False
    """Whether devices are in other processes, which learn nothing that changes in this one."""
    measured: Callable[[int], int] = lambda rounds: 0
    """How many times nodes say how well the model serves their users, up to the end of so many rounds."""


class Contribution(NamedTuple):
    """What a participant puts into an exchange."""

    public: bytes
    """Sent to all participants, through the server."""
    secret: bytes
    """Stays where it was made, is handed to `share` and once to `cover`, and is then forgotten."""


class DeviceHalf:
    """What devices do. This one does nothing; override what a channel needs.

    Axis 0 of an upload is clients in `seal` and participants in `cover`; nothing may mix them.
    """

    def open_download(self, down: Download) -> Download:
        """What was downloaded, readable."""
        return down

    def seal_server(self, server: Server) -> Server:
        """The server's first state, or one that `unseal_server` gave, as the server may hold it."""
        return server

    def unseal_server(self, server: Server) -> Server:
        """The state as it is written to files, in a simulator, which plays all devices."""
        return server

    def contribute(self, setup: RoundSetup, participant: int) -> Contribution:
        """What a participant puts into the exchange, for a channel that `prepares` by one."""
        raise NotImplementedError

    def share(self, setup: RoundSetup, participant: int, secret: bytes) -> Mapping[int, bytes]:
        """Letters to other participants, for a channel that prepares a recovery; the server passes them on."""
        raise NotImplementedError

    def retain(self, setup: RoundSetup, participant: int, secret: bytes) -> bytes:
        """What to keep, in the place of the secret, for `reveal`; called before `cover`, with the envelopes."""
        raise NotImplementedError

    def reveal(self, setup: RoundSetup, participant: int, kept: bytes, arrived: Collection[int]) -> bytes:
        """What opens the sum of those whose uploads arrived, said once."""
        raise NotImplementedError

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        """Every client's upload on its own: clip, add noise, round, encrypt."""
        return upload

    def seal_counts(self, counts: Tensors, ids: Ids, setup: RoundSetup) -> Tensors:
        """What each client says beside its upload, of losses and metrics, before a later stage hides it in a sum."""
        return counts

    def cover(self, upload: Upload, setup: RoundSetup, secrets: Mapping[int, bytes]) -> Upload:
        """What every participant hands over, sealed and, on a node, summed over its clients: mask.

        Args:
            upload: `ids` are participants.
            setup: with the messages of all participants.
            secrets: what `contribute` kept for these participants.
        """
        return upload


class ServerHalf:
    """What the server does. This one adds up; override what a channel needs."""

    readable: bool = True
    """Whether plain numbers arrive. If not, devices multiply by their own weights, and no gate can judge lengths."""

    def arriving(self, one: Tensors, setup: RoundSetup) -> Tensors:
        """The names, shapes and types in which the upload of one client arrives, from those the method gives it."""
        return one

    def collect(self, uploads: Iterable[Upload], setup: RoundSetup) -> Inbox:
        """Receive the uploads of a round, keeping no more than the method needs.

        Raises:
            IncompleteError: without those that did not arrive, the others say nothing.
        """
        return self.open_sums(add_up(uploads, setup.n_items, setup.needs, weighted=not self.readable), setup)

    def open_sums(self, received: Received, setup: RoundSetup) -> Received:
        """The mirror of sealing, on the sums: check that masks cancelled, add noise, turn integers into numbers."""
        return received


class Channel(ABC):
    """One way from devices to the server."""

    name: ClassVar[str]
    """As it is called in configs and results."""
    reveals: ClassVar[Need] = Need.EACH
    """The most the server sees."""
    protects: ClassVar[str]
    """What stays hidden from whom, in words."""
    shows: ClassVar[str] = ""
    """What the server sees of the uploads of a round, in words, where `reveals` does not say it all."""
    prepares: ClassVar[Preparation] = Preparation.ALONE
    hides: ClassVar[bool] = False
    """Whether all that a node says of its users is in the sum, too: weights, losses, how many there are, ranks."""
    withholds: ClassVar[bool] = False
    """Whether nodes keep losses to themselves, and what their own gate left out, because no noise covers them."""
    on_nodes: ClassVar[bool] = True
    """Whether it runs under Flower. No node seals the server's state, so a channel that does runs locally only."""
    section: ClassVar[str] = ""
    """The section of a config that holds its settings; empty without any."""
    settings_type: ClassVar[type | None] = None
    """That section: a frozen dataclass, every field with a default and a docstring."""

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings if settings is not None or self.settings_type is None else self.settings_type()

    @classmethod
    def sections(cls) -> dict[str, type]:
        """Its sections by name."""
        return {} if cls.settings_type is None else {cls.section: cls.settings_type}

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Channel:
        """The channel with the settings of its section; defaults where there is none."""
        return cls(settings.get(cls.section))

    def plays(self, n_participants: int) -> bool:
        """Whether a simulator plays the exchange, or spares it because sums are the same to the bit."""
        return True

    def check_cohort(self, method: str, n_clients: int, setup: RoundSetup) -> None:  # noqa: B027 - most refuse none
        """Refuse a cohort whose sum would not hide each client.

        Raises:
            PrivacyError: it is too small.
        """

    def begin(self, plan: Plan) -> int:
        """Get ready for a run; how many of its rounds may be run, where a promise allows only so many."""
        return plan.rounds

    def draw(self, population: Int[Tensor, " m"], round: int) -> Ids | None:
        """Who takes part, for a channel whose promise rests on how that is drawn; None leaves it to the method."""
        return None

    def keep(self) -> Tensors:
        """What a checkpoint must hold for the channel to go on as if it had not stopped; secrets, too."""
        return {}

    def restore(self, kept: Tensors) -> None:  # noqa: B027 - a channel that keeps nothing has nothing to do
        """Go on from what `keep` returned; `begin` follows."""

    def account(self, rounds: int) -> dict[str, Any]:
        """What a summary says of the privacy of so many rounds."""
        return {}

    def warnings(self) -> list[str]:
        """What else a reader of a summary should know, in sentences."""
        return []

    @abstractmethod
    def device(self, draws: Draws) -> DeviceHalf:
        """A device half.

        Args:
            draws: randomness of its own: unknown to the server on a node, repeatable in a simulator.
        """

    @abstractmethod
    def server(self) -> ServerHalf:
        """A server half; it gets no randomness and no key."""


class Plain(Channel):
    """No protection: the server sees every upload. Sums are taken as uploads arrive."""

    name = "plain"
    protects = "nothing: the server sees every upload"

    def device(self, draws: Draws) -> DeviceHalf:
        """Sends as it is."""
        return DeviceHalf()

    def server(self) -> ServerHalf:
        """Adds up."""
        return ServerHalf()
