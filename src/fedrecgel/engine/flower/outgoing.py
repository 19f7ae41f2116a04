"""What leaves a node: the device half over its own users, and once over what they send together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from fedrecgel.channels.base import DeviceHalf, RoundSetup
from fedrecgel.channels.sums import Received, add_up, each_of, whole
from fedrecgel.engine.flower.wire import prefixed
from fedrecgel.engine.uplink import fold
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Need, Upload
from fedrecgel.tensors import Ids, Tensors


class Outgoing:
    """The uplink of a node. All its users are one participant; where the server needs a sum, theirs leaves."""

    sent_up = sent_down = 0
    """Messages are counted where letters are."""

    def __init__(
        self,
        devices: DeviceHalf,
        setup: RoundSetup,
        participant: int,
        secrets: Mapping[int, bytes],
        *,
        weighted: bool,
        hides: bool = False,
    ) -> None:
        self._devices, self._setup, self._weighted, self.takes_losses = devices, setup, weighted, hides
        self._participant, self._secrets = participant, secrets
        self._received: Received | None = None

    def leave(self, upload: Upload) -> Upload:
        """Sealed user by user."""
        return fold(self._devices.seal(upload, self._setup), self._setup.needs, weighted=self._weighted)

    def collect(self, uploads: Iterable[Upload]) -> Received:
        """Added up, noting who sends with which weight."""
        self._received = add_up(uploads, self._setup.n_items, self._setup.needs, weighted=self._weighted)
        return self._received

    def hidden(self, asked: Ids) -> Tensors:
        """What leaves the node under masks: nothing tells who of those asked is in it, nor with which weight."""
        return (
            {"ids": asked}
            if self._received is None
            else {"ids": asked, **prefixed("sum", self._cover(self._received.sums))}
        )

    def packed(self, method: Method) -> Tensors:
        """What leaves the node.

        Raises:
            PrivacyError: a client would count by something its method does not declare to send.
        """
        found = self._received
        if found is None or not len(found.ids):
            return {"ids": torch.zeros(0, dtype=torch.int64)}
        sent: Tensors = {"ids": found.ids}
        if "weight" in method.leaves_device():
            sent["weight"] = found.weights
        elif not bool((found.weights == 1).all()):
            raise PrivacyError("Clients that do not weigh 1 send their weight, so the method must declare 'weight'.")
        if self._setup.needs < Need.EACH:
            return sent | prefixed("sum", self._cover(found.sums))
        each = [whole(upload, self._setup.n_items) for upload in found.each()]
        parts = [{name: each_of(value) for name, value in one.dense.items()} | one.rows for one in each]
        return sent | prefixed("each", {name: torch.cat([part[name] for part in parts]) for name in parts[0]})

    def _cover(self, sums: Tensors) -> Tensors:
        """The sum over this node's users as the upload of one participant."""
        one = {name: value[None] for name, value in sums.items()}
        upload = Upload(torch.tensor([self._participant]), one, {}, torch.zeros(1, 0, dtype=torch.int64), torch.ones(1))
        covered = self._devices.cover(upload, self._setup, self._secrets)
        return {name: each_of(value)[0] for name, value in covered.dense.items()}
