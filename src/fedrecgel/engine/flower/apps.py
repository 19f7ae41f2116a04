"""The two ends of a run under Flower: letters as messages, a courier over the grid, ClientApp and ServerApp."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedrecgel.engine.flower.node import Node, Work
from fedrecgel.engine.flower.superlink import FAILED
from fedrecgel.engine.flower.wire import Courier, Letter, Lost
from fedrecgel.errors import FedrecgelError

TYPES = {"hello": "query", "prepare": "query.prepare", "train": "train", "rank": "evaluate"}
"""The message type that carries each kind of letter."""
POLL_SECONDS = 0.2
BFLOAT16 = ":bfloat16"

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


def from_records(content: RecordDict) -> Letter:
    """The letter in a message; no pickle is ever loaded.

    Raises:
        ValueError: the content is no letter.
    """
    about = json.loads(str(content.config_records["about"]["json"]))
    if not isinstance(about, dict):
        raise TypeError("a letter is about something")
    tensors = {}
    for name, array in content.array_records["tensors"].items():
        value = torch.from_numpy(np.array(array.numpy()))
        if name.endswith(BFLOAT16):
            value = value.view(torch.bfloat16)
        tensors[name.removesuffix(BFLOAT16)] = value
    return Letter(about, tensors)


class GridCourier:
    """Carries letters through Flower's grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> list[int]:
        """Nodes with a heartbeat."""
        return sorted(self._grid.get_node_ids())

    def exchange(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        """Send all, then hand over answers until none is missing or the time is up."""
        deadline = time.monotonic() + seconds
        waiting: dict[str, int] = {}
        for node, letter in letters.items():  # one at a time: a message holds a copy of all that is broadcast
            message = Message(to_records(letter), dst_node_id=node, message_type=TYPES[kind], ttl=seconds)
            for message_id in self._grid.push_messages([message]):
                waiting[message_id] = node
        while waiting and time.monotonic() < deadline:
            for reply in self._grid.pull_messages(list(waiting)):
                asked = reply.metadata.reply_to_message_id  # the sender's own word for who it is does not count
                if asked in waiting:
                    yield waiting.pop(asked), _letter_of(reply)
            if waiting:
                time.sleep(POLL_SECONDS)
        for node in waiting.values():
            yield node, Lost(f"no answer within {seconds:g} s")


def _letter_of(reply: Message) -> Letter | Lost:
    if reply.has_error():
        return Lost(str(reply.error.reason or "it failed without a reason"))
    try:
        return from_records(reply.content)
    except Exception as error:  # whatever a hostile node makes the decoder raise concerns its own answer only
        return Lost(f"its answer cannot be read: {error}")


def client_app(work_of: Callable[[str], Work]) -> ClientApp:
    """What runs on a node: its users' shard is named by the node's own settings, or dealt out by a simulation."""
    app = ClientApp()

    def answer(kind: str, message: Message, context: Context) -> Message:
        try:
            node = Node(_shard_of(context), work_of, simulated="shard" not in context.node_config)
            letter = node.answer(kind, from_records(message.content))
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
