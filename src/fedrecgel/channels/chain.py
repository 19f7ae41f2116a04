"""Chain: a channel made of stages, each of which is a channel.

Devices seal in the order of the stages; the server opens in the reverse order, so that every stage finds what it left.
All stages seal the clients' uploads before the first one covers what a participant hands over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from jaxtyping import Int
from torch import Tensor

from fedrecgel.channels.base import Channel, Contribution, DeviceHalf, Plan, Preparation, RoundSetup, ServerHalf
from fedrecgel.channels.sums import COUNT, Received, each_of
from fedrecgel.draws import Draws
from fedrecgel.methods.messages import Download, Server, Upload
from fedrecgel.tensors import Ids, Tensors


class Chain(Channel):
    """Base of composed channels: a subclass lists its stages and has a name.

    The server sees what the most closed stage lets through. Settings stay in the sections of the stages.
    """

    stages: ClassVar[tuple[type[Channel], ...]] = ()

    def __init_subclass__(cls) -> None:
        """Derive what a chain reveals and needs from its stages."""
        if sum(stage.prepares >= Preparation.EXCHANGE for stage in cls.stages) > 1:
            raise TypeError(f"{cls.__name__}: only one stage of a chain may exchange messages")
        if any(not stage().server().readable for stage in cls.stages[:-1]):
            raise TypeError(f"{cls.__name__}: no stage can follow one that makes numbers unreadable")
        if any(type(stage().server()).collect is not ServerHalf.collect for stage in cls.stages):
            raise TypeError(f"{cls.__name__}: a stage opens sums in `open_sums`; its own `collect` would not be called")
        cls.reveals = min(stage.reveals for stage in cls.stages)
        cls.prepares = max(stage.prepares for stage in cls.stages)
        cls.hides = any(stage.hides for stage in cls.stages)
        cls.withholds = any(stage.withholds for stage in cls.stages)
        cls.on_nodes = all(stage.on_nodes for stage in cls.stages)

    def __init__(self, stages: Sequence[Channel] | None = None) -> None:
        super().__init__()
        self._stages = tuple(stages) if stages is not None else tuple(stage() for stage in self.stages)

    @classmethod
    def sections(cls) -> dict[str, type]:
        """Those of all stages."""
        return {name: kind for stage in cls.stages for name, kind in stage.sections().items()}

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Channel:
        """Every stage with its own section."""
        return cls([stage.build(settings) for stage in cls.stages])

    def plays(self, n_participants: int) -> bool:
        """As the stage that exchanges says."""
        return all(stage.plays(n_participants) for stage in self._stages)

    def check_cohort(self, method: str, n_clients: int, setup: RoundSetup) -> None:
        """Every stage has a word."""
        for stage in self._stages:
            stage.check_cohort(method, n_clients, setup)

    def begin(self, plan: Plan) -> int:
        """As many rounds as every stage allows."""
        return min(stage.begin(plan) for stage in self._stages)

    def draw(self, population: Int[Tensor, " m"], round: int) -> Ids | None:
        """By the first stage that has a rule."""
        found = (stage.draw(population, round) for stage in self._stages)
        return next((cohort for cohort in found if cohort is not None), None)

    def keep(self) -> Tensors:
        """Of every stage, under its name."""
        return {f"{stage.name}/{name}": value for stage in self._stages for name, value in stage.keep().items()}

    def restore(self, kept: Tensors) -> None:
        """Every stage its own."""
        for stage in self._stages:
            prefix = f"{stage.name}/"
            stage.restore({key.removeprefix(prefix): v for key, v in kept.items() if key.startswith(prefix)})

    def account(self, rounds: int) -> dict[str, Any]:
        """Of all stages; the first has the last word."""
        return {key: value for stage in reversed(self._stages) for key, value in stage.account(rounds).items()}

    def warnings(self) -> list[str]:
        """Of all stages."""
        return [text for stage in self._stages for text in stage.warnings()]

    def device(self, draws: Draws) -> DeviceHalf:
        """All device halves, first to last."""
        exchanging = [number for number, stage in enumerate(self._stages) if stage.prepares >= Preparation.EXCHANGE]
        apart = [stage.device(draws.part(f"{number}/{stage.name}")) for number, stage in enumerate(self._stages)]
        return ChainDevice(apart, exchanging)

    def server(self) -> ServerHalf:
        """All server halves, last to first."""
        return ChainServer([stage.server() for stage in self._stages])


class ChainDevice(DeviceHalf):
    """The device halves of all stages."""

    def __init__(self, halves: Sequence[DeviceHalf], exchanging: Sequence[int]) -> None:
        self._halves, self._exchanging = halves, exchanging

    def open_download(self, down: Download) -> Download:
        """Last stage first."""
        for half in reversed(self._halves):
            down = half.open_download(down)
        return down

    def seal_server(self, server: Server) -> Server:
        """First stage first."""
        for half in self._halves:
            server = half.seal_server(server)
        return server

    def unseal_server(self, server: Server) -> Server:
        """Last stage first."""
        for half in reversed(self._halves):
            server = half.unseal_server(server)
        return server

    def contribute(self, setup: RoundSetup, participant: int) -> Contribution:
        """What the one stage that exchanges contributes."""
        return self._halves[self._exchanging[0]].contribute(setup, participant)

    def share(self, setup: RoundSetup, participant: int, secret: bytes) -> Mapping[int, bytes]:
        """What that stage shares."""
        return self._halves[self._exchanging[0]].share(setup, participant, secret)

    def retain(self, setup: RoundSetup, participant: int, secret: bytes) -> bytes:
        """What that stage keeps."""
        return self._halves[self._exchanging[0]].retain(setup, participant, secret)

    def reveal(self, setup: RoundSetup, participant: int, kept: bytes, arrived: Collection[int]) -> bytes:
        """What that stage says in the end."""
        return self._halves[self._exchanging[0]].reveal(setup, participant, kept, arrived)

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        """First stage first; losses and metrics, which no method sends, go their own way to the last: it hides them."""
        counts = {name: each_of(value) for name, value in upload.dense.items() if name.startswith(COUNT)}
        upload = replace(upload, dense={name: value for name, value in upload.dense.items() if name not in counts})
        for half in self._halves[:-1]:
            upload, counts = half.seal(upload, setup), half.seal_counts(counts, upload.ids, setup)
        return self._halves[-1].seal(replace(upload, dense={**upload.dense, **counts}), setup)

    def cover(self, upload: Upload, setup: RoundSetup, secrets: Mapping[int, bytes]) -> Upload:
        """First stage first."""
        for half in self._halves:
            upload = half.cover(upload, setup, secrets)
        return upload


class ChainServer(ServerHalf):
    """The server halves of all stages."""

    def __init__(self, halves: Sequence[ServerHalf]) -> None:
        self._halves = halves
        self.readable = halves[-1].readable

    def arriving(self, one: Tensors, setup: RoundSetup) -> Tensors:
        """As the devices' stages change it, first to last."""
        for half in self._halves:
            one = half.arriving(one, setup)
        return one

    def open_sums(self, received: Received, setup: RoundSetup) -> Received:
        """Last stage first."""
        for half in reversed(self._halves):
            received = half.open_sums(received, setup)
        return received
