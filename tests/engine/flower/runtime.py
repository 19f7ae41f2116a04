"""Flower's own grid over a Runtime API in this process, whose answers can be anything a hostile node can make."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.superlink.grid.http_grid import HttpGrid

Change = Callable[[str, bytes], bytes]
"""Another content for an object of this kind."""


def as_it_is(kind: str, content: bytes) -> bytes:
    return content


def with_body(content: bytes, change: Callable[[Any], object]) -> bytes:
    """The same object with another JSON document in it."""
    head, body = content.split(b"\0", 1)
    kind, children, _ = head.decode().split(" ")
    found = json.loads(body)
    text = json.dumps(change(found) or found).encode()
    return f"{kind} {children} {len(text)}".encode() + b"\0" + text


class Runtime:
    """Holds one answer for every message asked for, as objects, as a SuperLink does."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[Any, Any]] = {}
        self.objects: dict[str, bytes] = {}
        self.n_fetched = 0

    def put(self, asked: str, content: RecordDict, change: Change = as_it_is, claims: str | None = None) -> None:
        """Answer a message, and perhaps claim to answer another."""
        question = Message(RecordDict(), dst_node_id=1, message_type="train")
        question.metadata.__dict__["_message_id"] = claims or asked
        answer = Message(content, reply_to=question)
        for name, part in get_all_nested_objects(answer).items():
            plain = part.deflate()
            self.objects[name] = change(plain.split(b" ", 1)[0].decode(), plain)
        proto = message_to_proto(remove_content_from_message(answer))
        proto.metadata.message_id = answer.object_id
        self.answers[asked] = proto, get_object_tree(answer)

    def PullMessages(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        found = [self.answers.pop(asked) for asked in request.message_ids if asked in self.answers]
        protos, trees = [proto for proto, _ in found], [tree for _, tree in found]
        return PullAppMessagesResponse(messages_list=protos, message_object_trees=trees)

    def PullObject(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        self.n_fetched += 1
        content = self.objects[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None: ...  # noqa: N802 - Flower's name

    def close(self) -> None: ...


class LocalGrid(HttpGrid):
    """Flower's grid; messages to node N are numbered `mN`."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(token="none")
        self._client = runtime  # type: ignore[assignment]
        self._run = type("OneRun", (), {"run_id": 1})()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [f"m{message.metadata.dst_node_id}" for message in messages]
