"""The two ends of a run under Flower: letters as messages, a courier over the grid, ClientApp and ServerApp.

A node runs its own installed ClientApp, whatever bundle of code the server sends along.
"""

from __future__ import annotations

import json
import logging
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedrecgel.engine.flower.node import Node, Work
from fedrecgel.engine.flower.peers import fingerprint as fingerprint_of
from fedrecgel.engine.flower.peers import hash_of
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.scales import Scales
from fedrecgel.engine.flower.superlink import FAILED, app_files
from fedrecgel.engine.flower.wire import Courier, Letter, Lost, shortened
from fedrecgel.errors import FedrecgelError, PolicyError, RunError

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
POLL_SECONDS = 0.2
BFLOAT16 = ":bfloat16"
BUNDLE_BYTES = 1 << 20
"""More than any bundle of ours holds, unpacked."""
MANIFEST = ".info/CONTENT"
"""Flower's own list of what is in a bundle."""

log = logging.getLogger("flwr")  # what this logger writes is kept with the run


def to_records(letter: Letter) -> RecordDict:
    """A letter as the content of a message."""
    arrays = {}
    for name, value in letter.tensors.items():
        plain = value.detach().cpu().contiguous()
        if plain.dtype == torch.bfloat16:  # numpy has no such type: its bits travel
            name, plain = name + BFLOAT16, plain.view(torch.int16)
        arrays[name] = Array(plain.numpy())
    return RecordDict({"about": ConfigRecord({"json": json.dumps(letter.about)}), "tensors": ArrayRecord(arrays)})


def from_records(content: RecordDict, most_bytes: int | None = None) -> Letter:
    """The letter in a message; no pickle is ever loaded.

    Raises:
        ValueError: the content is no letter, or longer than it may be.
    """
    text, arrays = str(content.config_records["about"]["json"]), content.array_records["tensors"]
    n_bytes = len(text) + sum(len(name) + len(array.data) for name, array in arrays.items())
    if most_bytes is not None and n_bytes > most_bytes:
        raise ValueError(f"it has {n_bytes} bytes and may have {most_bytes}")
    about = json.loads(text)
    if not isinstance(about, dict):
        raise TypeError("a letter is about something")
    tensors = {}
    for name, array in arrays.items():
        value = torch.from_numpy(np.array(array.numpy()))
        if name.endswith(BFLOAT16):
            value = value.view(torch.bfloat16)
        tensors[name.removesuffix(BFLOAT16)] = value
    return Letter(about, tensors)


class GridCourier:
    """Carries letters through Flower's grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
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
        deadline = time.monotonic() + seconds
        waiting: dict[str, int] = {}
        for node, letter in letters.items():  # one at a time: a message holds a copy of all that is broadcast
            message = Message(to_records(letter), dst_node_id=node, message_type=TYPES[kind], ttl=seconds)
            for message_id in self._grid.push_messages([message]):
                waiting[message_id] = node
        while waiting and time.monotonic() < deadline:
            for asked, node in list(waiting.items()):
                # One at a time: an answer that Flower cannot unpack takes no other with it, and only one is in memory.
                answer = self._pull(asked, letters[node].answer_bytes)
                if answer is not None:
                    yield waiting.pop(asked), answer
            if waiting:
                time.sleep(POLL_SECONDS)
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


def client_app(work_of: Callable[[str], Work], policy_of: Callable[[str], Policy]) -> ClientApp:
    """What runs on a node: its users' shard is named by the node's own settings, or dealt out by a simulation.

    Args:
        work_of: what a node makes of the settings in a letter.
        policy_of: the policy in the file that the node's own settings name; the default if that is empty.
    """
    app = ClientApp()

    def answer(kind: str, message: Message, context: Context) -> Message:
        own = context.node_config
        try:
            policy = policy_of(str(own.get("policy", ""))) if "shard" in own else None
            key = Path(str(own["key"])) if own.get("key") else None
            node = Node(_shard_of(context), work_of, simulated=policy is None, policy=policy, key=key)
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


def _shard_of(context: Context) -> Path:
    own = context.node_config.get("shard")
    if own:
        return Path(str(own))
    return Path(str(context.run_config["shards"])) / f"node-{context.node_config['partition-id']}"


def answer_one_message(app: ClientApp) -> None:
    """The process Flower starts on a node for a message, which runs this app instead of the bundle's.

    Flower would unpack the bundle that came from the server and import it, with the rights of the node.

    Raises:
        RunError: this version of Flower does that in another way than those that were tested.
    """
    task = import_module("flwr.supernode.runtime.run_clientapp")
    ours = {
        "install_from_fab": lambda content, **_: check_bundle(content),
        "get_load_client_app_fn": lambda **_: lambda *_: app,
    }
    for name, function in ours.items():
        if not hasattr(task, name):
            raise RunError(f"A node cannot tell how this version of Flower loads apps: '{name}' is gone. Take 1.41.")
        setattr(task, name, function)
    import_module("flwr.supernode.cli").flwr_clientapp()


def check_bundle(content: bytes) -> None:
    """Refuse a bundle that is not the one this package makes; it is compared, never unpacked to disk.

    Raises:
        PolicyError: it is another one.
    """
    known, found = _hash({name: text.encode() for name, text in app_files().items()}), bundle_hash(content)
    if found != known:
        log.warning("Refused a run whose app is not this package's: SHA-256 %s, not %s", found, known)
        raise PolicyError(
            f"A server should send the app that fedrecgel makes, SHA-256 {known}. Found {found}. Install the same "
            f"version on both sides; nothing of it was run."
        )


def bundle_hash(content: bytes) -> str:
    """SHA-256 of the files in a bundle: how they are compressed depends on the machine."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as bundle:
            if sum(part.file_size for part in bundle.infolist()) > BUNDLE_BYTES:
                return "of something larger"
            return _hash({name: bundle.read(name) for name in bundle.namelist() if name != MANIFEST})
    except Exception:  # whatever a hostile archive makes the reader raise
        return "of something unreadable"


def _hash(files: Mapping[str, bytes]) -> str:
    hashes = sorted([name, sha256(content).hexdigest()] for name, content in files.items())
    return sha256(json.dumps(hashes).encode()).hexdigest()


def server_app(serve: Callable[[Courier, Mapping[str, Any]], None]) -> ServerApp:
    """What runs beside the SuperLink: `serve` with a courier and the run's own settings."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(GridCourier(grid), context.run_config)
        except Exception as error:
            known = isinstance(error, FedrecgelError)
            reason = str(error) if known else f"unexpected {type(error).__name__}: {error}"
            log.exception("%s%s", FAILED, reason.replace("\n", " "))
            raise

    return app
