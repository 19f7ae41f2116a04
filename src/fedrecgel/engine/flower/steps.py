"""Sums under masks, a node's side: what it answers before and after the letter that carries its masked sum.

Every letter takes what the one before left on disk, and leaves what the next needs: nothing is answered twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_bytes

import torch

from fedrecgel.channels.base import Channel, DeviceHalf, RoundSetup
from fedrecgel.draws import Draws
from fedrecgel.engine.flower.exchange import State, keep, take
from fedrecgel.engine.flower.ledger import settle
from fedrecgel.engine.flower.peers import Card, Identity, check_cards, sign
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.secret import SECRET_BYTES
from fedrecgel.engine.flower.wire import Letter
from fedrecgel.errors import PolicyError
from fedrecgel.methods.base import Method

TRAIN = "train"


@dataclass(frozen=True)
class Steps:
    """One node, one sum."""

    method: Method
    channel: Channel
    n_items: int
    folder: Path
    """Of the run, in the node's state."""
    ledger: Path
    """The folder of the ledger."""
    settings: str
    """Fingerprint of the run's settings."""
    letter: Letter
    policy: Policy | None
    """None in a simulation."""
    own: Identity | None

    @property
    def participant(self) -> int:
        """This node's number in the sum: its first client."""
        return int(self.letter.tensors["ids"].min())

    @property
    def purpose(self) -> str:
        """What is summed."""
        return str(self.letter.about["purpose"])

    @property
    def about(self) -> str:
        """What cards are signed for."""
        said = self.letter.about
        return f"{said['run']}, settings {self.settings}, round {said['round']}, {self.purpose}"

    def prepare(self, seed: int) -> Letter:
        """Fresh keys, signed; what is secret is on disk before anything is sent."""
        if self.policy is not None and self.own is None:
            raise PolicyError(
                "Sums under masks need this node's own key and those of its peers. Start it with --key, and list the "
                "peers' public keys under [peers] in the file that --policy names; or allow another channel."
            )
        given = self._device(seed).contribute(self._setup({}, 0), self.participant)
        keep(self.folder, State("prepare", self.about, self.participant, given.secret.hex()))
        card = Card(self.about, self.participant, len(self.letter.tensors["ids"]), given.public)
        return self._answer({"message": sign(card, self.own).hex()})

    def share(self) -> Letter:
        """Letters to neighbours, once it is sure who they are."""
        state = take(self.folder, "prepare", self.about, self.participant)
        messages = {int(name): bytes.fromhex(text) for name, text in self.letter.about["messages"].items()}
        cards = check_cards(messages, self.about, self.own)
        clients = {participant: card.clients for participant, card in cards.items()}
        self._check_total(clients.values())
        published = {participant: card.public for participant, card in cards.items()}
        if self.participant not in published:
            raise PolicyError("A node should share with others in sums that it is part of. It is not.")
        secret = bytes.fromhex(state.secret)
        letters = self._device().share(self._setup(published, sum(clients.values())), self.participant, secret)
        texts = {participant: public.hex() for participant, public in published.items()}
        keep(self.folder, replace(state, stage="share", messages=texts, clients=clients))
        return self._answer({"letters": {str(name): letter.hex() for name, letter in letters.items()}})

    def cover(self, device: DeviceHalf) -> tuple[RoundSetup, dict[int, bytes]]:
        """The round as the node's masks need it, and the secret they come from, for one upload."""
        state = take(self.folder, "share", self.about, self.participant)
        letters = {int(name): bytes.fromhex(text) for name, text in self.letter.about["envelopes"].items()}
        setup = replace(self._of(state), envelopes={self.participant: letters})
        secret = bytes.fromhex(state.secret)
        kept = device.retain(setup, self.participant, secret)
        keep(self.folder, replace(state, stage="cover", secret=kept.hex()))
        return setup, {self.participant: secret}

    def unmask(self) -> Letter:
        """What opens the sum of those that arrived, if they are enough; said once, and for the same ones always."""
        state = take(self.folder, "cover", self.about, self.participant)
        arrived = sorted({int(number) for number in self.letter.about["arrived"]} & state.clients.keys())
        clients = [state.clients[participant] for participant in arrived]
        self._check_total(clients)
        setup = replace(self._of(state), cohort=torch.arange(sum(clients)))
        revealed = self._device().reveal(setup, self.participant, bytes.fromhex(state.secret), arrived)
        if self.policy is not None:
            settle(self.ledger, self.policy, self.purpose, self.letter.about["round"], arrived, self.settings)
        return self._answer({"revealed": revealed.hex()})

    def _check_total(self, clients: Iterable[int]) -> None:
        if self.policy is not None:
            self.policy.check_total(self.method, sum(clients), trains=self.purpose == TRAIN)

    def _of(self, state: State) -> RoundSetup:
        messages = {participant: bytes.fromhex(text) for participant, text in state.messages.items()}
        return self._setup(messages, sum(state.clients.values()))

    def _setup(self, messages: Mapping[int, bytes], n_clients: int) -> RoundSetup:
        """How many clients there are is what nodes signed, not what the server says."""
        cohort = torch.arange(n_clients)
        setup = RoundSetup.of(self.method, self.letter.about["round"], cohort, self.n_items, messages)
        return setup if self.purpose == TRAIN else replace(setup, smallest=1)  # of metrics, any sum hides enough

    def _device(self, seed: int = 0) -> DeviceHalf:
        """Every exchange draws from a new secret: masks that come back could be subtracted."""
        return self.channel.device(Draws(seed, token_bytes(SECRET_BYTES)))

    def _answer(self, said: dict[str, object]) -> Letter:
        return Letter({"round": self.letter.about["round"], **said})
