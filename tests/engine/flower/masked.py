"""Nodes in this process with keys and peers of their own, as real ones have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from tests.builders import random_split
from tests.engine.flower.inprocess import InProcess, Tamper

from fedrecgel.data.split import Split
from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.runs.flower import work_of

SPLIT = random_split(n_users=30, n_items=130)


def write_key(place: Path) -> str:
    """A private key in a file; the line of its public half."""
    key = ec.generate_private_key(ec.SECP384R1())
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def masked_nodes(
    folder: Path,
    n_nodes: int = 10,
    tamper: Tamper = lambda node, kind, answer: [answer],
    split: Split = SPLIT,
    rules: Callable[[int], dict[str, Any]] = lambda number: {},
) -> InProcess:
    """Nodes 100, 101, ... that know each other's keys; some with rules of their own."""
    places = write_shards(split, folder / "shards", n_nodes)
    keys = [folder / "keys" / f"node-{number}" for number in range(n_nodes)]
    peers = {key.name: write_key(key) for key in keys}

    def maker(number: int) -> Callable[[Path], Node]:
        policy = Policy(**{"peers": peers, "min_sum": 10, **rules(number)})
        return lambda place: Node(place, work_of, simulated=False, policy=policy, key=keys[number])

    return InProcess(places, tamper, {100 + number: maker(number) for number in range(n_nodes)})
