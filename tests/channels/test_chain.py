"""Stages: sealed in their order, opened in the reverse one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.channels.uploads import random_upload, setup_of

from fedrecgel.channels.base import Channel, Contribution, DeviceHalf, Preparation, RoundSetup, ServerHalf
from fedrecgel.channels.bfv import Encrypted
from fedrecgel.channels.chain import Chain
from fedrecgel.channels.sums import Received
from fedrecgel.draws import Draws
from fedrecgel.methods.messages import Download, Inbox, Need, Server, Upload
from fedrecgel.tensors import Tensors

CALLS: list[str] = []


@dataclass(frozen=True)
class Letter:
    """Names a stage."""

    letter: str = "?"
    """Its name."""


class NotingDevice(DeviceHalf):
    """Writes down what is called."""

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def note(self, what: str) -> None:
        CALLS.append(f"{self.letter} {what}")

    def open_download(self, down: Download) -> Download:
        self.note("open_download")
        return down

    def seal_server(self, server: Server) -> Server:
        self.note("seal_server")
        return server

    def unseal_server(self, server: Server) -> Server:
        self.note("unseal_server")
        return server

    def contribute(self, setup: RoundSetup, participant: int) -> Contribution:
        return Contribution(self.letter.encode(), b"")

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        self.note("seal")
        return upload

    def cover(self, upload: Upload, setup: RoundSetup, secrets: Mapping[int, bytes]) -> Upload:
        self.note("cover")
        return upload


class NotingServer(ServerHalf):
    def __init__(self, letter: str) -> None:
        self.letter = letter

    def arriving(self, one: Tensors, setup: RoundSetup) -> Tensors:
        return {f"{name}{self.letter}": value for name, value in one.items()}

    def open_sums(self, received: Received, setup: RoundSetup) -> Received:
        CALLS.append(f"{self.letter} open_sums")
        return replace(received, weight=received.weight + 1)


class First(Channel):
    name, protects, section, settings_type = "first", "nothing", "one", Letter

    def device(self, draws: Draws) -> DeviceHalf:
        return NotingDevice(self.settings.letter)

    def server(self) -> ServerHalf:
        return NotingServer(self.settings.letter)


class Second(First):
    section, reveals, prepares = "two", Need.SUM, Preparation.COHORT


class Third(First):
    section, prepares = "three", Preparation.EXCHANGE


class Three(Chain):
    name, protects, stages = "three", "nothing", (First, Second, Third)


SETUP = setup_of(Need.SUM)
BUILT = Three.build({"one": Letter("a"), "two": Letter("b"), "three": Letter("c")})


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    CALLS.clear()


def test_devices_seal_in_order_and_cover_afterwards() -> None:
    upload, device = random_upload(torch.Generator(), 2, 3, torch.ones(2).double()), BUILT.device(Draws(0))
    device.cover(device.seal(upload, SETUP), SETUP, {})
    assert CALLS == ["a seal", "b seal", "c seal", "a cover", "b cover", "c cover"]


def test_the_server_mirrors_them() -> None:
    uploads = [random_upload(torch.Generator(), 2, 3, torch.ones(2).double())]
    found = BUILT.server().collect(uploads, SETUP)
    assert CALLS == ["c open_sums", "b open_sums", "a open_sums"]
    assert isinstance(found, Received)
    assert found.weight == 2 + 3
    assert list(BUILT.server().arriving({"x": torch.zeros(1)}, setup_of(Need.SUM))) == ["xabc"]


def test_the_servers_state_is_sealed_in_order_and_opened_in_reverse() -> None:
    device = BUILT.device(Draws(0))
    device.unseal_server(device.seal_server(Server({})))
    device.open_download(Download({}))
    assert [f"{letter} seal_server" for letter in "abc"] + [
        f"{letter} {what}" for what in ("unseal_server", "open_download") for letter in "cba"
    ] == CALLS


def test_a_chain_reveals_the_least_and_needs_the_most_of_its_stages() -> None:
    assert (Three.reveals, Three.prepares, Three.on_nodes) == (Need.SUM, Preparation.EXCHANGE, True)
    assert Three.sections() == {"one": Letter, "two": Letter, "three": Letter}
    assert BUILT.device(Draws(0)).contribute(SETUP, 0).public == b"c"

    class Encrypting(Chain):
        name, protects, stages = "encrypting", "all", (First, Encrypted)

    assert (Encrypting.reveals, Encrypting.prepares, Encrypting.on_nodes) == (Need.LINEAR, Preparation.ALONE, False)
    assert not Encrypting().server().readable


def test_stages_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TypeError, match="only one stage"):
        type("Twice", (Chain,), {"stages": (Third, Third)})
    with pytest.raises(TypeError, match="no stage can follow"):
        type("Wrong", (Chain,), {"stages": (Encrypted, First)})


def test_no_server_half_reaches_a_device_half() -> None:
    from tests.channels.reach import reachable

    device, server = BUILT.device(Draws(0, b"secret")), BUILT.server()
    assert any(isinstance(value, NotingDevice) for value in reachable(device))
    assert not any(isinstance(value, DeviceHalf | Draws) for value in reachable([server, BUILT]))


class NoisyDevice(DeviceHalf):
    """Notes what it draws."""

    drawn: ClassVar[list[float]] = []

    def __init__(self, draws: Draws) -> None:
        self.drawn.append(float(draws.normal("noise", 0, np.arange(1), 1)[0, 0]))


class Noisy(Channel):
    """Draws under a word that others may use, too."""

    name, protects = "noisy", "nothing"

    def device(self, draws: Draws) -> DeviceHalf:
        return NoisyDevice(draws)

    def server(self) -> ServerHalf:
        return ServerHalf()


def test_stages_draw_apart() -> None:
    class Twice(Chain):
        name, protects, stages = "twice", "nothing", (Noisy, Noisy)

    NoisyDevice.drawn.clear()
    Twice().device(Draws(1))
    first, second = NoisyDevice.drawn
    assert first != second


def test_a_stage_with_a_collect_of_its_own_is_refused() -> None:
    class Collecting(ServerHalf):
        def collect(self, uploads: Iterable[Upload], setup: RoundSetup) -> Inbox:
            return super().collect(uploads, setup)

    class Own(Noisy):
        def server(self) -> ServerHalf:
            return Collecting()

    with pytest.raises(TypeError, match="its own `collect` would not be called"):

        class Chained(Chain):
            name, protects, stages = "chained", "nothing", (Own,)
