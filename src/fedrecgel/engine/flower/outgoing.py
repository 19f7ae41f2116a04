"""The node's end of the plain channel: what it collects is packed into a letter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from fedrecgel.channels.base import Plain
from fedrecgel.engine.flower.wire import prefixed
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.base import Inbox, Method, Need, Upload
from fedrecgel.tensors import Factors, Ids, Summed, Tensors


class Outgoing(Plain):
    """Collects the uploads of a node's own users."""

    def __init__(self) -> None:
        self._ids: list[Ids] = []
        self._weights: list[Tensor] = []
        self._inbox: Inbox | None = None

    def collect(self, uploads: Iterable[Upload], n_items: int, needs: Need) -> Inbox:
        """Add up as ever, noting who sends with which weight."""
        self._inbox = super().collect(self._noted(uploads), n_items, needs)
        return self._inbox

    def _noted(self, uploads: Iterable[Upload]) -> Iterator[Upload]:
        for upload in uploads:
            self._ids.append(upload.ids)
            self._weights.append(upload.weight)
            yield upload

    def packed(self, method: Method, n_items: int) -> Tensors:
        """What leaves the node.

        Raises:
            PrivacyError: a client would count by something its method does not declare to send.
        """
        if not self._ids or self._inbox is None:
            return {"ids": torch.zeros(0, dtype=torch.int64)}
        ids, weight = torch.cat(self._ids), torch.cat(self._weights)
        sent: Tensors = {"ids": ids}
        if "weight" in method.leaves_device():
            sent["weight"] = weight
        elif not bool((weight == 1).all()):
            raise PrivacyError("Clients that do not weigh 1 send their weight, so the method must declare 'weight'.")
        if method.server_needs < Need.EACH:
            return sent | prefixed("sum", self._inbox.total())
        whole = [_whole(upload, n_items) for upload in self._inbox.each()]
        return sent | prefixed("each", {name: torch.cat([part[name] for part in whole]) for name in whole[0]})


def _whole(upload: Upload, n_items: int) -> Tensors:
    """Every client's upload with its tables dense: which rows were sent is not told apart from their values."""
    found: Tensors = {}
    for name, value in upload.dense.items():
        if isinstance(value, Summed):
            raise PrivacyError(f"'{name}' was summed over clients, but the server needs each of them.")
        found[name] = value.each() if isinstance(value, Factors) else value
    for name, value in upload.rows.items():
        table = value.new_zeros(len(value), n_items, value.shape[2])
        index = upload.at[:, :, None].expand_as(value)
        found[name] = table.scatter_add_(1, index, value)
    return found
