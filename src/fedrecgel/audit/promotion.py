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

from fedrecgel.audit.scene import Scene, Wiretap
from fedrecgel.channels.base import Plain, RoundSetup
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
LENGTH = 2.0
"""Of the target's row when it is where it should be, by the longest popular one."""


@dataclass(frozen=True)
class Promotion:
    """What an attack reached."""

    malicious: float
    """Share of clients."""
    er: float
    """ER@10 of the target."""
    hr: float
    """HR@10 of the honest users' held-out items."""


class Tampering:
    """The way of uploads, with malicious clients on it; limits of the gate bind them, too."""

    def __init__(
        self, way: Uplink, attackers: Ids, target: int, goal: Tensors, gain: float, gate: GateSettings
    ) -> None:
        self._way, self._attackers, self._target, self._goal, self._gate = way, attackers, target, goal, gate
        self._gain = gain
        self.sent_up, self.sent_down = way.sent_up, way.sent_down
        self._longest = 0.0

    def leave(self, upload: Upload) -> Upload:
        """Malicious clients send the target's row alone, as long as the longest honest upload so far."""
        bad = torch.isin(upload.ids, self._attackers)
        lengths = torch.stack([value.flatten(1).norm(dim=1) for value in upload.rows.values()]).norm(dim=0)
        if bool((~bad).any()):
            self._longest = max(self._longest, float(lengths[~bad].max()))
        if not bool(bad.any()):
            return self._way.leave(upload)
        total = torch.stack([row.norm() for row in self._goal.values()]).norm().clamp(min=1e-12)
        length = min(self._longest, self._gain * float(total))
        rows, at = {name: value.clone() for name, value in upload.rows.items()}, upload.at.clone()
        at[bad, 0] = self._target
        for name, value in rows.items():
            value[bad] = 0
            value[bad, 0] = -(length / total * self._goal[name]).to(value)  # servers subtract gradients
        honest = (~bad).to(upload.weight)
        dense = {name: _mute(value, honest) for name, value in upload.dense.items()}
        return self._way.leave(shorten_rows(replace(upload, rows=rows, at=at, dense=dense), self._gate))

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


def usual_limits(scene: Scene, after: int = 0) -> GateSettings:
    """Limits at the middle of what honest clients send after so many rounds: of longest rows, and of whole uploads.

    In the first round limits are tightest. A server with Adam learns with them as well; one without, whose gradients
    start short, hardly does.
    """
    engine, server, draws = scene.engine(Plain()), scene.first_server(), Draws(scene.config.run.seed)
    for t in range(after):
        cohort = scene.method.cohort(server, engine.population(), t, draws)
        server = scene.method.server_update(server, engine.train(server, cohort, t).inbox, t, draws)
    clients = scene.some_clients(ASKED)
    setup = RoundSetup(after, clients, scene.split.n_items, scene.method.server_needs)
    tap = Wiretap(engine.devices, Plain().server(), setup)
    engine.train_with(scene.method.broadcast(server, clients), clients, after, tap)
    rows = torch.cat([row_lengths(upload).max(1).values for upload in tap.heard])
    whole = torch.cat([upload_lengths(upload) for upload in tap.heard])
    middle, all_of_it = float(rows.median()), float(whole.median())
    return replace(scene.config.gate, row_limit=middle, client_limit=all_of_it)


def promote(scene: Scene, share: float, rounds: int, gate: GateSettings | None = None) -> Promotion:
    """Train with so many malicious clients, and look at what honest users are recommended."""
    gate = gate or scene.config.gate
    engine = scene.engine(gate=gate)
    popularity = scene.histories.popularity
    target = int(np.flatnonzero(popularity == popularity[popularity > 0].min())[0])  # nobody's favourite
    attackers = scene.some_clients(round(share * scene.split.n_users), turn=10**6)
    neighbours = torch.from_numpy(np.argsort(-popularity)[:NEIGHBOURS].copy())
    server, draws, gain = scene.first_server(), Draws(scene.config.run.seed), 1 / max(1, len(attackers))
    for t in range(rounds):
        cohort = scene.method.cohort(server, engine.population(), t, draws)
        setup = RoundSetup(t, cohort, scene.split.n_items, scene.method.server_needs)
        way = Simulated(scene.channel, engine.devices, scene.channel.server(), setup)
        goal = {
            name: pull(value[neighbours], value[target])
            for name, value in server.shared.items()
            if value.dim() == 2 and len(value) == scene.split.n_items
        }
        tampered = Tampering(way, attackers, target, goal, gain, gate)
        trained = engine.train_with(scene.method.broadcast(server, cohort), cohort, t, tampered)
        if not trained.n_answers:  # diverged: the gate refused everybody
            break
        before = copy(server.shared)
        server = scene.method.server_update(server, trained.inbox, t, draws)
        went = moved(before, server.shared, target, goal)
        gain *= min(4.0, max(0.25, 1 / went)) if went > 0 else 4.0  # how servers scale uploads shows in what they do
    return Promotion(share, exposure(scene, engine, server, target, attackers), _hit_rate(engine, server))


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
