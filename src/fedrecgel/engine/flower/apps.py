"""The two ends of a run under Flower: letters as messages, a courier over the grid, ClientApp and ServerApp.

A node runs its own installed ClientApp, whatever bundle of code the server sends along: see supernode.py.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from safetensors.torch import load, save
from torch import Tensor

from fedrecgel.engine.flower.node import Node, Work
from fedrecgel.engine.flower.peers import fingerprint as fingerprint_of
from fedrecgel.engine.flower.peers import hash_of
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.scales import Scales
from fedrecgel.engine.flower.superlink import FAILED
from fedrecgel.engine.flower.waits import Eager, fetch_sooner
from fedrecgel.engine.flower.wire import Courier, Letter, Lost, shortened
from fedrecgel.errors import FedrecgelError, PolicyError, RunError
from fedrecgel.tensors import Tensors

TYPES = {
    "hello": "query",
    "prepare": "query.prepare",
    "share": "query.share",
    "train": "train",
    "rank": "evaluate",
    "confirm": "query.confirm",
    "unmask": "query.unmask",
}
"""The message type that carries each kind of letter."""
POLL_SECONDS = 1.0
SMALL_BYTES = 4 << 20
"""Less than the pieces into which Flower cuts arrays."""

log = logging.getLogger("flwr")  # what this logger writes is kept with the run


def to_records(letter: Letter, common: Collection[str] = ()) -> RecordDict:
    """A letter as the content of a message.

    Flower makes an object of every array, and several requests of every object. So all tensors travel as one record,
    or as two: what a letter has in common with those to other nodes, which Flower then keeps once, and what not.
    """
    parts = {
        "common": {name: value for name, value in letter.tensors.items() if name in common},
        "own": {name: value for name, value in letter.tensors.items() if name not in common},
    }
    records = {part: _record(packed(tensors)) for part, tensors in parts.items() if tensors}
    return RecordDict({"about": ConfigRecord({"json": json.dumps(letter.about)}), **records})


def _record(content: bytes) -> ConfigRecord | ArrayRecord:
    """Bytes as one object if that is small, else as an array, which Flower cuts into pieces."""
    if len(content) <= SMALL_BYTES:
        return ConfigRecord({"bytes": content})
    return ArrayRecord({"bytes": Array(np.frombuffer(content, np.uint8))})


def from_records(content: RecordDict, most_bytes: int | None = None) -> Letter:
    """The letter in a message; no pickle is ever loaded.

    Raises:
        ValueError: the content is no letter, or longer than it may be.
    """
    text = str(content.config_records["about"]["json"])
    small = [cast(bytes, record["bytes"]) for name, record in content.config_records.items() if name != "about"]
    arrays = [record["bytes"] for record in content.array_records.values()]
    n_bytes = len(text) + sum(map(len, small)) + sum(len(array.data) for array in arrays)
    if most_bytes is not None and n_bytes > most_bytes:
        raise ValueError(f"it has {n_bytes} bytes and may have {most_bytes}")
    about = json.loads(text)
    if not isinstance(about, dict):
        raise TypeError("a letter is about something")
    tensors: dict[str, Tensor] = {}
    for part in [*small, *(array.numpy().tobytes() for array in arrays)]:
        tensors |= load(part)
    return Letter(about, tensors)


def packed(tensors: Tensors) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})


def in_common(letters: Collection[Letter]) -> set[str]:
    """Names of the tensors that all these letters share, as the same object."""
    first, *others = letters
    return {name for name, value in first.tensors.items() if all(one.tensors.get(name) is value for one in others)}


class GridCourier:
    """Carries letters through Flower's grid."""

    def __init__(self, grid: Grid, is_over: Callable[[], bool] = lambda: False) -> None:
        """`is_over` says that nobody waits for the run any more."""
        fetch_sooner()
        self._grid, self._is_over = grid, is_over
        client = getattr(grid, "_runtime_client", None)  # a simulation has none: its messages are in this process
        self._scales = None if client is None else Scales(client)
        if self._scales is not None:
            setattr(grid, "_client", self._scales)  # noqa: B010 - Flower offers no other way to limit it

    def nodes(self) -> dict[int, str]:
        """Nodes with a heartbeat, by the fingerprint of the key that the SuperLink knows them by."""
        found = sorted(self._grid.get_nodes(), key=lambda node: node.node_id)
        return {node.node_id: fingerprint(node.public_key) or f"node {node.node_id}" for node in found}

    def exchange(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        """Send all, then hand over answers until none is missing or the time is up."""
        deadline, eager = time.monotonic() + seconds, Eager()
        waiting: dict[str, int] = {}
        common = in_common(letters.values()) if letters else set()
        for node, letter in letters.items():  # one at a time: a message holds a copy of all that is broadcast
            message = Message(to_records(letter, common), dst_node_id=node, message_type=TYPES[kind], ttl=seconds)
            for message_id in self._grid.push_messages([message]):
                waiting[message_id] = node
        while waiting and time.monotonic() < deadline:
            for asked, node in list(waiting.items()):
                # One at a time: an answer that Flower cannot unpack takes no other with it, and only one is in memory.
                answer = self._pull(asked, letters[node].answer_bytes)
                if answer is not None:
                    yield waiting.pop(asked), answer
            if self._is_over():
                raise RunError("The run was stopped.")
            if waiting:
                eager.sleep(POLL_SECONDS)
        for node in waiting.values():
            yield node, Lost(f"no answer within {seconds:g} s")

    def _pull(self, asked: str, most_bytes: int) -> Letter | Lost | None:
        """The answer to this message, if it is there."""
        try:
            if self._scales is not None:
                self._scales.begin(most_bytes)
            replies = list(self._grid.pull_messages([asked]))
            if not replies:
                return None
            if replies[0].metadata.reply_to_message_id != asked:  # a node's word for what it answers does not count
                return Lost("its answer is to another message")
            if replies[0].has_error():
                return Lost(shortened(replies[0].error.reason or "it failed without a reason"))
            return from_records(replies[0].content, most_bytes)
        except httpx.HTTPError:  # the SuperLink itself cannot be reached
            raise
        except Exception as error:  # whatever a hostile node makes the decoder raise concerns its own answer only
            return Lost(shortened(f"its answer cannot be read: {error}"))


def fingerprint(public_key: bytes) -> str:
    """Of a node's key, as `ssh-keygen -l` prints it; of random bytes, which simulated nodes have, their hash."""
    if not public_key:
        return ""
    try:
        return fingerprint_of(load_pem_public_key(public_key))
    except (ValueError, UnsupportedAlgorithm):
        return hash_of(public_key)


def client_app(
    work_of: Callable[[str], Work], policy_of: Callable[[str], Policy], shards: Path | None = None
) -> ClientApp:
    """What runs on a node: its users' shard is named by the node's own settings, or dealt out by a simulation.

    Args:
        work_of: what a node makes of the settings in a letter.
        policy_of: the policy in the file that the node's own settings name; the default if that is empty.
        shards: of a simulation.
    """
    app = ClientApp()

    def answer(kind: str, message: Message, context: Context) -> Message:
        own = context.node_config
        try:
            policy = policy_of(str(own.get("policy", ""))) if "shard" in own else None
            key = Path(str(own["key"])) if own.get("key") else None
            node = Node(_shard_of(context, shards), work_of, simulated=policy is None, policy=policy, key=key)
            letter = node.answer(kind, from_records(message.content))
        except PolicyError as error:
            log.warning("Refused '%s': %s", kind, error)
            letter = Letter({"error": str(error)})
        except Exception as error:  # the server should learn why, whatever it was
            log.exception("This node could not answer '%s'", kind)
            known = isinstance(error, FedrecgelError)
            letter = Letter({"error": str(error) if known else f"{type(error).__name__}: {error}"})
        return Message(to_records(letter), reply_to=message)

    @app.query()
    def hello(message: Message, context: Context) -> Message:
        return answer("hello", message, context)

    @app.query("prepare")
    def prepare(message: Message, context: Context) -> Message:
        return answer("prepare", message, context)

    @app.query("share")
    def share(message: Message, context: Context) -> Message:
        return answer("share", message, context)

    @app.query("confirm")
    def confirm(message: Message, context: Context) -> Message:
        return answer("confirm", message, context)

    @app.query("unmask")
    def unmask(message: Message, context: Context) -> Message:
        return answer("unmask", message, context)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answer("train", message, context)

    @app.evaluate()
    def rank(message: Message, context: Context) -> Message:
        return answer("rank", message, context)

    return app


def _shard_of(context: Context, shards: Path | None) -> Path:
    own = context.node_config
    if shards is not None:
        return shards / f"node-{own['partition-id']}"
    return Path(str(own["shard"]))


def server_app(
    serve: Callable[[Courier, Mapping[str, Any]], None], is_over: Callable[[], bool] = lambda: False
) -> ServerApp:
    """What runs beside the SuperLink: `serve` with a courier and the run's own settings."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(GridCourier(grid, is_over), context.run_config)
        except Exception as error:
            known = isinstance(error, FedrecgelError)
            reason = str(error) if known else f"unexpected {type(error).__name__}: {error}"
            log.exception("%s%s", FAILED, reason.replace("\n", " "))
            raise

    return app
