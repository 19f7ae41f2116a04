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
from fedrecgel.channels.neighbours import quorum
from fedrecgel.draws import Draws
from fedrecgel.engine.flower.exchange import State, keep, take
from fedrecgel.engine.flower.ledger import settle
from fedrecgel.engine.flower.peers import Card, Identity, Word, check_cards, give_word, same_word, sign
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.secret import SECRET_BYTES
from fedrecgel.engine.flower.wire import Letter, unpack_download
from fedrecgel.errors import PolicyError
from fedrecgel.methods.base import Method
from fedrecgel.storage import digest_of

TRAIN = "train"


def rank_purpose(held_out: str, against: str) -> str:
    """What a sum of metrics is for."""
    return f"rank/{held_out}/{against}"


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

    def check_purpose(self, kind: str) -> None:
        """Refuse to put into a sum what it is not for: the rules of one would hold for the other.

        Raises:
            PolicyError: the letter says another purpose than that of its kind.
        """
        said = self.letter.about
        meant = TRAIN if kind == TRAIN else rank_purpose(said["held_out"], said["against"])
        if self.purpose != meant:
            raise PolicyError(f"A letter '{kind}' should be for the sum '{meant}'. It says '{self.purpose:.60}'.")

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
        own = {self.participant: given.public.hex()}
        keep(self.folder, State("prepare", self.about, self.participant, given.secret.hex(), self._asked, own))
        card = Card(self.about, self.participant, len(self.letter.tensors["ids"]), given.public)
        return self._answer({"message": sign(card, self.own).hex()})

    def share(self) -> Letter:
        """Letters to neighbours, once it is sure who they are."""
        state = self._take("prepare")
        messages = {int(name): bytes.fromhex(text) for name, text in self.letter.about["messages"].items()}
        cards, signers = check_cards(messages, self.about, self.own)
        clients = {participant: card.clients for participant, card in cards.items()}
        self._check_total(clients.values())
        published = {participant: card.public for participant, card in cards.items()}
        if published.get(self.participant, b"").hex() != state.messages[self.participant]:
            raise PolicyError("A node should share with others in sums that it is part of, with its latest keys.")
        secret = bytes.fromhex(state.secret)
        letters = self._device().share(self._setup(published, sum(clients.values())), self.participant, secret)
        texts = {participant: public.hex() for participant, public in published.items()}
        keep(self.folder, replace(state, stage="share", messages=texts, clients=clients, signers=signers))
        return self._answer({"letters": {str(name): letter.hex() for name, letter in letters.items()}})

    def cover(self, device: DeviceHalf) -> tuple[RoundSetup, dict[int, bytes]]:
        """The round as the node's masks need it, and the secret they come from, for one upload."""
        state = self._take("share")
        letters = {int(name): bytes.fromhex(text) for name, text in self.letter.about["envelopes"].items()}
        sharers = tuple(sorted({int(number) for number in self.letter.about["sharers"]} & state.clients.keys()))
        setup = replace(self._of(state), envelopes={**{other: {} for other in sharers}, self.participant: letters})
        secret = bytes.fromhex(state.secret)
        kept = device.retain(setup, self.participant, secret)
        received = unpack_download(self.letter.tensors).shared
        least = self.method.hides_from(received).sum if self.purpose == TRAIN else 0
        keep(self.folder, replace(state, stage="cover", secret=kept.hex(), sharers=sharers, least=least))
        return setup, {self.participant: secret}

    def confirm(self) -> Letter:
        """Its word on who is in the sum: a server that tells others something else does not get enough of them."""
        state = self._take("cover")
        arrived = tuple(sorted({int(number) for number in self.letter.about["arrived"]} & set(state.sharers)))
        self._check_total((state.clients[participant] for participant in arrived), state.least)
        state = replace(state, stage="confirm", arrived=arrived)
        keep(self.folder, state)
        return self._answer({"word": give_word(self._word(state), self.own).hex()})

    def unmask(self) -> Letter:
        """What opens the sum of those that arrived, if they are enough; said once, and for the same ones always."""
        state = self._take("confirm")
        arrived = state.arrived
        words = {int(name): bytes.fromhex(text) for name, text in self.letter.about["words"].items()}
        said, needed = same_word(self._word(state), words, state.signers, self.own), quorum(len(state.clients))
        if said < needed:
            raise PolicyError(
                f"Before a sum is opened, at least {needed} of {len(state.clients)} nodes should say the same of who "
                f"is in it. {said} do: the server may have told others something else."
            )
        setup = replace(self._of(state), cohort=torch.arange(sum(state.clients[one] for one in arrived)))
        revealed = self._device().reveal(setup, self.participant, bytes.fromhex(state.secret), arrived)
        if self.policy is not None:
            settle(self.ledger, self.policy, self.purpose, self.letter.about["round"], arrived, self.settings)
        return self._answer({"revealed": revealed.hex()})

    @property
    def _asked(self) -> str:
        return digest_of({"ids": self.letter.tensors["ids"]})

    def _take(self, stage: str) -> State:
        """What the letter before left, if this one is about the same clients: their number is signed."""
        state = take(self.folder, stage, self.about, self.participant)
        if state.asked != self._asked:
            raise PolicyError("All letters of a sum should be about the same users of a node. These are not.")
        return state

    def _word(self, state: State) -> Word:
        cards = {one: (text, state.clients[one]) for one, text in sorted(state.messages.items())}
        return Word(self.about, cards, list(state.sharers), list(state.arrived))

    def _check_total(self, clients: Iterable[int], least: int = 0) -> None:
        if self.policy is not None:
            self.policy.check_total(self.method, sum(clients), least, trains=self.purpose == TRAIN)

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
