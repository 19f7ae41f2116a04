"""Peers: cards that nodes sign with the keys Flower knows them by: nobody on the way can put in keys of his own.

A node takes the public keys of its peers from its own policy file, never from the server.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from fedrecgel.channels.masks import library
from fedrecgel.errors import ConfigError, PolicyError

LABEL = b"fedrecgel secagg card 1\0"
"""Before what is signed: a signature made for anything else does not fit."""
WORD = b"fedrecgel secagg word 1\0"
"""The same, before what a node says of a sum."""


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node says of itself at the beginning of a sum."""

    about: str
    """Run, round and purpose: a card is good for one sum."""
    participant: int
    clients: int
    """Of its users, how many take part."""
    public: bytes
    """The keys of this round."""


class Word(msgspec.Struct, frozen=True):
    """What a node says of a sum before it is opened; all who open it say the same."""

    about: str
    cards: dict[int, tuple[str, int]]
    """By participant its keys, which are new for every sum, and its clients."""
    sharers: list[int]
    arrived: list[int]
    """Whose uploads are in the sum."""


class Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A card and who signed it; in a simulation nobody."""

    card: bytes
    signer: str = ""
    signature: bytes = b""


@dataclass(frozen=True)
class Identity:
    """A node's own key, and those of its peers by fingerprint."""

    key: Any
    peers: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The fingerprint of its own."""
        return fingerprint(self.key.public_key())

    def key_of(self, signer: str) -> Any:
        """A public key by its fingerprint: its own, or that of a peer."""
        return self.key.public_key() if signer == self.name else self.peers[signer]


def identity(key: Path | None, peers: Mapping[str, str]) -> Identity | None:
    """What a node needs to take part in sums under masks; None if it has no key or knows no peers.

    Raises:
        ConfigError: a key cannot be read.
    """
    if key is None or not peers:
        return None
    serialization = library("cryptography.hazmat.primitives.serialization")
    try:
        own = serialization.load_ssh_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{key}' should be this node's private key, as ssh-keygen makes it: {error}.") from error
    if not isinstance(own, library("cryptography.hazmat.primitives.asymmetric.ec").EllipticCurvePrivateKey):
        raise ConfigError(f"'{key}' should be an ECDSA key, as deploy/keys.sh makes it. Found another kind.")
    return Identity(own, {fingerprint(found): found for found in map(public_key, peers.values())})


def public_key(line: str) -> Any:
    """A key from a line of a `.pub` file.

    Raises:
        ConfigError: it is something else.
    """
    serialization = library("cryptography.hazmat.primitives.serialization")
    curve = library("cryptography.hazmat.primitives.asymmetric.ec").EllipticCurvePublicKey
    try:
        found = serialization.load_ssh_public_key(line.encode())
    except (ValueError, library("cryptography.exceptions").UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"[peers] should hold lines of the nodes' .pub files. Found '{line:.60}': {error}."
        ) from error
    if not isinstance(found, curve):
        raise ConfigError(f"[peers] should hold ECDSA keys, as deploy/keys.sh makes them. Found '{line:.60}'.")
    return found


def fingerprint(key: Any) -> str:
    """As `ssh-keygen -l` prints it."""
    serialization = library("cryptography.hazmat.primitives.serialization")
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return hash_of(b64decode(line.split()[1]))


def hash_of(content: bytes) -> str:
    """SHA-256, as ssh-keygen writes it."""
    return "SHA256:" + b64encode(sha256(content).digest()).decode().rstrip("=")


def sign(card: Card, own: Identity | None) -> bytes:
    """A card as it travels."""
    text = msgspec.msgpack.encode(card)
    if own is None:
        return msgspec.msgpack.encode(Signed(text))
    return msgspec.msgpack.encode(Signed(text, own.name, own.key.sign(LABEL + text, _algorithm())))


def give_word(word: Word, own: Identity | None) -> bytes:
    """A signature under it; in a simulation nothing."""
    return b"" if own is None else own.key.sign(WORD + msgspec.msgpack.encode(word), _algorithm())


def same_word(word: Word, signatures: Mapping[int, bytes], signers: Mapping[int, str], own: Identity | None) -> int:
    """How many of those who arrived said the same, by their signatures.

    Args:
        word: this node's.
        signatures: by participant, as the server passed them on.
        signers: by participant, the key that signed its card.
        own: this node's key and peers; in a simulation None, and nothing is checked.
    """
    here = {participant: text for participant, text in signatures.items() if participant in word.arrived}
    if own is None:
        return len(here)
    text = WORD + msgspec.msgpack.encode(word)
    return sum(_is_signed(text, signature, own.key_of(signers[one])) for one, signature in here.items())


def _is_signed(text: bytes, signature: bytes, key: Any) -> bool:
    try:
        key.verify(signature, text, _algorithm())
    except library("cryptography.exceptions").InvalidSignature:
        return False
    return True


def read_card(message: bytes) -> Card:
    """The card in a message, whoever signed it: all that the server can do.

    Raises:
        msgspec.DecodeError: there is none.
    """
    return msgspec.msgpack.decode(msgspec.msgpack.decode(message, type=Signed).card, type=Card)


def check_cards(
    messages: Mapping[int, bytes], about: str, own: Identity | None
) -> tuple[dict[int, Card], dict[int, str]]:
    """The cards of all who take part, each signed by a peer of its own; and by whom.

    Args:
        messages: by participant, as the server passed them on.
        about: run, round and purpose.
        own: this node's key and peers; in a simulation None, and nothing is checked but what cards are about.

    Raises:
        PolicyError: a card is not signed by a peer, is for another sum, or comes twice.
    """
    signers: dict[int, str] = {}
    found = {}
    for participant, message in messages.items():
        signed = msgspec.msgpack.decode(message, type=Signed)
        card = msgspec.msgpack.decode(signed.card, type=Card)
        if (card.about, card.participant) != (about, participant) or card.clients < 1:
            raise PolicyError(
                "A card should be for this sum and for the participant it is said to be from. One is not."
            )
        if own is not None:
            if signed.signer != own.name and signed.signer not in own.peers:
                raise PolicyError(
                    f"Who shares a sum with this node should be listed under [peers] in its policy file. "
                    f"{signed.signer} is not: the server may have put in a key of its own. Nothing is sent."
                )
            if signed.signer in signers.values():
                raise PolicyError(f"A node should take part in a sum once. {signed.signer} is there twice.")
            if not _is_signed(LABEL + signed.card, signed.signature, own.key_of(signed.signer)):
                raise PolicyError(
                    f"The card of {signed.signer} should be signed by it. It is not: somebody on the way changed its "
                    f"keys. Nothing is sent."
                )
            signers[participant] = signed.signer
        found[participant] = card
    return found, signers


def _algorithm() -> Any:
    hashes = library("cryptography.hazmat.primitives.hashes")
    return library("cryptography.hazmat.primitives.asymmetric.ec").ECDSA(hashes.SHA384())
