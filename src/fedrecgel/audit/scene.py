"""A run set up to be watched: what the server sees of single clients, and of sums over cohorts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from secrets import token_bytes

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.audit.guesses import Histories
from fedrecgel.channels.base import Channel, DeviceHalf, Plain, RoundSetup, ServerHalf
from fedrecgel.channels.dp import Noisy
from fedrecgel.channels.sums import each_of, whole
from fedrecgel.data.federation import Federation
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.gate import GateSettings
from fedrecgel.engine.local import LocalEngine
from fedrecgel.engine.store import ClientStore
from fedrecgel.engine.uplink import fold
from fedrecgel.methods import spectral_start
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Inbox, Need, Problem, Server, Upload
from fedrecgel.runs.allowed import allowed_rounds
from fedrecgel.runs.config import Config
from fedrecgel.tensors import Factors, Ids, Sealed, Summed, Tensors, copy

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sight:
    """What the server sees of one client in one round: rows of item tables."""

    client: int
    round: int
    items: npt.NDArray[np.int64]
    """Rows that are not zero, or not as they were sent to the device."""
    tables: tuple[Rows, ...]
    """These rows of each table."""


class Wiretap:
    """The way of uploads through a channel that reveals each of them, with somebody listening at its end."""

    sent_up = sent_down = 0

    def __init__(self, devices: DeviceHalf, server: ServerHalf, setup: RoundSetup) -> None:
        self._devices, self._server, self._setup = devices, server, setup
        self.heard: list[Upload] = []

    def leave(self, upload: Upload) -> Upload:
        """Sealed as always; a copy stays here."""
        sealed = self._devices.seal(upload, replace(self._setup, cohort=upload.ids))
        self.heard.append(sealed)
        return fold(sealed, self._setup.needs, weighted=not self._server.readable)

    def collect(self, uploads: Iterable[Upload]) -> Inbox:
        """As the channel's server does."""
        return self._server.collect(uploads, self._setup)


@dataclass
class Scene:
    """Devices of a run, before its first round."""

    config: Config
    split: Split
    histories: Histories = field(init=False)
    method: Method = field(init=False)
    channel: Channel = field(init=False)

    def __post_init__(self) -> None:
        self.histories = Histories(self.split.train)
        goes_on = self.config.run.start is not None
        self.method = self.config.method.build().settled(self.problem, goes_on=goes_on)
        self.channel = self.config.channel()
        allowed_rounds(self.config, self.method, self.channel, self.split.n_users)

    @property
    def cohort_size(self) -> int:
        """Clients of a round: a fixed number, or the one expected."""
        return max(1, int(self.method.fraction * self.split.n_users))

    @property
    def problem(self) -> Problem:
        """Sizes."""
        return Problem(self.split.n_users, self.split.n_items, torch.float32)

    def engine(self, channel: Channel | None = None, gate: GateSettings | None = None) -> LocalEngine:
        """All devices; those of a run on nodes draw from a secret, as nodes do.

        Without a kernel, whatever the run had: kernels add uploads up before anybody can look at them or forge some.
        """
        draws = Draws(self.config.run.seed, token_bytes(32) if self.config.run.engine == "flower" else b"")
        federation = Federation(self.split, self.config.sampling, torch.float32)
        store = ClientStore(self.method, self.problem, draws)
        channel, gate = channel or self.channel, gate or self.config.gate
        local = replace(self.config.local, accelerate=False)
        return LocalEngine(self.method, federation, channel, store, draws, local, gate)

    def first_server(self, *, start: bool = False) -> Server:
        """Before round 0, or before what comes after a spectral start."""
        server = self.method.init_server(self.problem, Draws(self.config.run.seed))
        return server if start else replace(server, shared=spectral_start.left(server.shared))

    def from_random_tables(self) -> Scene:
        """The same run without a spectral start, if it has one: limits that fit gradients would cut its counts.

        One that goes on from an earlier run begins anew, too: what it kept is not here.
        """
        begins = spectral_start.begins(self.first_server(start=True).shared)
        if not begins and getattr(self.method, "init", None) != "kept":
            return self
        settings = self.config.method
        settings = replace(settings, options={**settings.options, "init": "normal"})
        return Scene(replace(self.config, method=settings), self.split)

    def some_clients(self, n: int, turn: int = 0) -> Ids:
        """So many clients, other ones in every turn."""
        generator = np.random.default_rng([self.config.run.seed, turn])
        chosen = generator.choice(self.split.n_users, min(n, self.split.n_users), replace=False)
        return torch.from_numpy(np.sort(chosen))

    def watch(self, clients: Ids, rounds: int) -> Iterator[list[Sight]]:
        """What the server sees of each of these clients, round by round, where the channel reveals that."""
        engine, server = self.engine(), self.first_server()
        for t in range(rounds):
            setup = RoundSetup(t, clients, self.split.n_items, self.method.server_needs)
            tap = Wiretap(engine.devices, self.channel.server(), setup)
            trained = engine.train_with(self.method.broadcast(server, clients), clients, t, tap)
            yield [sight for upload in tap.heard for sight in self._sights(upload, server.shared, t)]
            server = self.method.server_update(server, trained.inbox, t, Draws(self.config.run.seed))

    def _sights(self, upload: Upload, shared: Tensors, round: int) -> Iterator[Sight]:
        tables = item_tables(upload, self.split.n_items)
        for number, client in enumerate(upload.ids.tolist()):
            own = [changed(table[number], shared.get(name)) for name, table in tables.items()]
            touched = torch.zeros(self.split.n_items, dtype=torch.bool)
            for table in own:
                touched |= table.any(1)
            items = touched.nonzero()[:, 0]
            yield Sight(client, round, items.numpy(), tuple(table[items].double().numpy() for table in own))

    @property
    def sums_are_exact(self) -> bool:
        """Whether the server sees sums without noise."""
        return not isinstance(self.channel, Noisy) and "dp" not in self.channel.sections()

    def cohorts(self, n: int, turns: int, rounds: int = 1, *, start: bool = False) -> Iterator[list[Tensors]]:
        """What the server sees of cohorts of n, in so many rounds of each; all members take part.

        A sum behind masks is the sum without them.
        """
        engine, draws = self.engine(Plain() if self.sums_are_exact else None), Draws(self.config.run.seed)
        first = self.first_server(start=start)
        for turn in range(turns):
            server, found = Server(copy(first.shared), copy(first.kept)), []
            for t in range(rounds):
                inbox = engine.train(server, self.some_clients(n, turn), t).inbox
                found.append({name: value for name, value in inbox.total().items() if not isinstance(value, Sealed)})
                if t + 1 < rounds:
                    server = self.method.server_update(server, inbox, t, draws)
            yield found

    def largest_number(self, setup: RoundSetup) -> float:
        """What a device can send at most: masked numbers have a range."""
        if "fixed_point" not in self.channel.sections():
            return math.inf
        return max(float(self.config.channels["fixed_point"].largest), setup.magnitude)

    @property
    def sees_each(self) -> bool:
        """Whether single uploads are revealed."""
        return self.channel.reveals == Need.EACH

    @property
    def sees_sums(self) -> bool:
        """Whether sums can be read."""
        return self.channel.reveals >= Need.SUM


def item_tables(upload: Upload, n_items: int) -> dict[str, Float[Tensor, "C n d"]]:
    """Every client's tensors that have a row for each item."""
    seen = whole(replace(upload, dense=unsummed(upload)), n_items)
    tables = dict(seen.rows)
    for name, value in seen.dense.items():
        each = each_of(value)
        if each.dim() == 3 and each.shape[1] == n_items:
            tables[name] = each
    return tables


def unsummed(upload: Upload) -> dict[str, Tensor | Factors | Summed]:
    """Dense tensors of which there is still one per client."""
    return {name: value for name, value in upload.dense.items() if not isinstance(value, Summed)}


def changed(table: Float[Tensor, "n d"], sent: Tensor | None) -> Float[Tensor, "n d"]:
    """A gradient as it is; of a table that was trained on the device, what training changed."""
    if sent is None or sent.shape != table.shape:
        return table
    difference = table - sent
    return difference if int(difference.any(1).sum()) < int(table.any(1).sum()) else table
