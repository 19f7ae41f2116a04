"""Promotion: some clients are not users but somebody's, and push one item up for everybody else.

The attack is that of popular neighbours (after PIECK, Zhang et al., ICDE 2024, https://arxiv.org/abs/2502.12958): what
recommends popular items to all users is the direction of their vectors, so the malicious clients push the target's row
that way until it is longer than theirs, together, and nobody with a longer upload than the longest honest one. All
that takes is the model and a list of popular items.
ER@10 is the share of users, among those who do not have it, to whom the target is recommended among the first ten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedrecgel.audit.scene import Scene
from fedrecgel.channels.base import RoundSetup
from fedrecgel.channels.sums import each_of
from fedrecgel.draws import Draws
from fedrecgel.engine.gate import GateSettings, row_lengths, shorten_rows, upload_lengths
from fedrecgel.engine.local import LocalEngine
from fedrecgel.engine.uplink import Simulated, Uplink
from fedrecgel.evaluation.metrics import metrics
from fedrecgel.methods.messages import Inbox, Server, Upload
from fedrecgel.tensors import Factors, Ids, Summed, Tensors, copy

NEIGHBOURS = 50
"""Popular items towards which the target is pulled."""
ASKED = 400
"""Users whose recommendations are looked at."""
BEST = 10
ROUNDING = 1e-6
"""How far below a limit forged numbers stay, relative to it: rounded to single precision they must not be beyond it."""
LENGTH = 2.0
"""Of the target's row when it is where it should be, by the longest popular one."""
STAY_BELOW = 0.25
"""Share of honest clients whose longest row stays as it is under limits by round. At half of them, 5% malicious clients
push FedMF's item later in a run."""


@dataclass(frozen=True)
class Promotion:
    """What an attack reached."""

    malicious: float
    """Share of clients."""
    er: float
    """ER@10 of the target."""
    hr: float
    """HR@10 of the honest users' held-out items."""
    row_limits: tuple[float, ...] = ()
    """Round by round, what a quarter of the honest clients stays below with its longest row; where limits follow that,
    those that were in force."""
    first_limits: tuple[float, float] = (0.0, 0.0)
    """The middle of honest clients' longest rows and of whole uploads in the first round: other ones."""


class Tampering:
    """The way of uploads, with malicious clients on it; limits of the gate and of numbers bind them, too."""

    def __init__(
        self,
        way: Uplink,
        attackers: Ids,
        target: int,
        goal: Tensors,
        gain: float,
        gate: GateSettings,
        round: int,
        most: float,
    ) -> None:
        self._way, self._attackers, self._target, self._goal, self._gate = way, attackers, target, goal, gate
        self._gain, self._round, self._most = gain, round, most
        self._rows: list[Tensor] = []
        self._wholes: list[Tensor] = []
        self.sent_up, self.sent_down = way.sent_up, way.sent_down
        self._longest = 0.0

    def leave(self, upload: Upload) -> Upload:
        """Malicious clients send the target's row alone, as long as the longest honest upload so far."""
        bad = torch.isin(upload.ids, self._attackers)
        self._rows.append(row_lengths(upload)[~bad].amax(1))
        self._wholes.append(upload_lengths(upload)[~bad])
        lengths = torch.stack([value.flatten(1).norm(dim=1) for value in upload.rows.values()]).norm(dim=0)
        if bool((~bad).any()):
            self._longest = max(self._longest, float(lengths[~bad].max()))
        if not bool(bad.any()):
            return self._way.leave(shorten_rows(upload, self._gate, self._round))
        total = torch.stack([row.norm() for row in self._goal.values()]).norm().clamp(min=1e-12)
        most = self._most * (1 - ROUNDING) * float(total) / self._loudest(upload, bad)
        length = min(self._longest, self._gain * float(total), most)
        rows, at = {name: value.clone() for name, value in upload.rows.items()}, upload.at.clone()
        at[bad, 0] = self._target
        for name, value in rows.items():
            value[bad] = 0
            value[bad, 0] = -(length / total * self._goal[name]).to(value)  # servers subtract gradients
        honest = (~bad).to(upload.weight)
        dense = {name: _mute(value, honest) for name, value in upload.dense.items()}
        return self._way.leave(shorten_rows(replace(upload, rows=rows, at=at, dense=dense), self._gate, self._round))

    def _loudest(self, upload: Upload, bad: Tensor) -> float:
        """The largest number of the goal, as it would be sent with the largest weight of a malicious client."""
        number = max(float(row.abs().max()) for row in self._goal.values())
        return max(number * max(1.0, float(upload.weight[bad].max())), 1e-12)

    @property
    def usual_row(self) -> float:
        """What a quarter of the honest clients stays below with its longest row."""
        return float(torch.cat(self._rows).quantile(STAY_BELOW))

    @property
    def middle(self) -> tuple[float, float]:
        """Of honest clients' longest rows, and of their whole uploads."""
        return float(torch.cat(self._rows).median()), float(torch.cat(self._wholes).median())

    def collect(self, uploads: Iterable[Upload]) -> Inbox:
        """As without them."""
        return self._way.collect(uploads)


def _mute(value: Tensor | Factors | Summed, honest: Tensor) -> Tensor | Factors:
    """Malicious clients leave the network as it is."""
    if isinstance(value, Factors):
        return value.scale(honest)
    return each_of(value) * honest.view(-1, *[1] * (each_of(value).dim() - 1))


def pull(popular: Tensor, target: Tensor) -> Tensor:
    """What is missing to a row in the direction of the popular ones, longer than each of them."""
    direction = popular.mean(0)
    longest: Tensor = popular.norm(dim=1).max()
    missing: Tensor = LENGTH * longest * direction / direction.norm().clamp(min=1e-12) - target
    return missing


def moved(before: Tensors, after: Tensors, target: int, goal: Tensors) -> float:
    """Which part of the way to its goal the target's row went in a round."""
    step = sum(float(((after[name] - before[name])[target] * way).sum()) for name, way in goal.items())
    return step / max(sum(float(way.square().sum()) for way in goal.values()), 1e-12)


def promotable(scene: Scene) -> bool:
    """Whether the method's clients send gradients of item tables that they also download."""
    shared = scene.first_server().shared
    tables = [name for name, value in shared.items() if value.dim() == 2 and len(value) == scene.split.n_items]
    return scene.method.samples_negatives and bool(tables) and set(tables) <= scene.method.leaves_device()


def promote(
    scene: Scene, share: float, rounds: int, gate: GateSettings | None = None, *, follow: float = 0.0
) -> Promotion:
    """Train with so many malicious clients, and look at what honest users are recommended.

    Args:
        scene: the run.
        share: of clients that are malicious.
        rounds: of training.
        gate: limits; those of the run unless given.
        follow: the limit of rows in the first round; in others it is what a quarter of the honest clients stayed below
            in the round before. 0 for limits that are known.
    """
    gate = gate or scene.config.gate
    engine = scene.engine(gate=gate)
    popularity = scene.histories.popularity
    target = int(np.flatnonzero(popularity == popularity[popularity > 0].min())[0])  # nobody's favourite
    attackers = scene.some_clients(round(share * scene.split.n_users), turn=10**6)
    neighbours = torch.from_numpy(np.argsort(-popularity)[:NEIGHBOURS].copy())
    server, draws, gain = scene.first_server(), Draws(scene.config.run.seed), 1 / max(1, len(attackers))
    usual: list[float] = []
    limits: list[float] = []
    middle: tuple[float, float] | None = None
    for t in range(rounds):
        cohort = scene.method.cohort(server, engine.population(), t, draws)
        setup = RoundSetup.of(scene.method, t, cohort, scene.split.n_items)
        way = Simulated(scene.channel, engine.devices, scene.channel.server(), setup)
        goal = {
            name: pull(value[neighbours], value[target])
            for name, value in server.shared.items()
            if value.dim() == 2 and len(value) == scene.split.n_items
        }
        if follow:
            limits.append(usual[-1] if usual else follow)
        limited = replace(gate, row_limits=tuple(limits)) if follow else gate
        most = scene.largest_number(setup)
        tampered = Tampering(way, attackers, target, goal, gain, limited, t, most)
        trained = engine.train_with(scene.method.broadcast(server, cohort), cohort, t, tampered)
        if not trained.n_answers:  # diverged: the gate refused everybody
            break
        usual.append(tampered.usual_row)
        middle = middle or tampered.middle
        before = copy(server.shared)
        server = scene.method.server_update(server, trained.inbox, t, draws)
        went = moved(before, server.shared, target, goal)
        gain *= min(4.0, max(0.25, 1 / went)) if went > 0 else 4.0  # how servers scale uploads shows in what they do
    shown = exposure(scene, engine, server, target, attackers)
    return Promotion(share, shown, _hit_rate(engine, server), tuple(limits or usual), middle or (0.0, 0.0))


def fixed_limits(honest: Promotion, gate: GateSettings) -> GateSettings:
    """Limits at the middle of the first round, which fit servers that scale what they get, as Adam does."""
    row, whole = honest.first_limits
    return replace(gate, row_limit=row, client_limit=whole)


def limits_by_round(followed: Promotion, gate: GateSettings) -> GateSettings:
    """Limits that grow as honest rows do under them.

    A server that adds up gradients learns by their growth, which fixed limits stop: FedMF starts where all gradients
    are short. Those of a run without limits are too wide, because it grows faster.
    """
    return replace(gate, row_limits=followed.row_limits)


def exposure(scene: Scene, engine: LocalEngine, server: Server, target: int, attackers: Ids) -> float:
    """ER@10: of honest users who do not have it, how many find the target among their first ten."""
    users = [
        client
        for client in scene.some_clients(ASKED, turn=10**6 + 1).tolist()
        if target not in scene.histories.of(client) and client not in set(attackers.tolist())
    ]
    ids = torch.tensor(users)
    down = engine.devices.open_download(scene.method.broadcast(server, ids))
    found = 0
    for start in range(0, len(ids), 50):
        some = ids[start : start + 50]
        items = torch.arange(scene.split.n_items).expand(len(some), -1)
        history = engine.federation.history(some)
        scores = scene.method.score(engine.store.look(some), down.of(slice(start, start + 50)), history, items).clone()
        for row, client in enumerate(some.tolist()):
            scores[row, sorted(scene.histories.of(client))] = -torch.inf
        found += int((scores.topk(BEST, 1).indices == target).any(1).sum())
    return found / max(1, len(ids))


def _hit_rate(engine: LocalEngine, server: Server) -> float:
    return metrics(engine.ranks(server, "test", "candidates"))[f"HR@{BEST}"]
