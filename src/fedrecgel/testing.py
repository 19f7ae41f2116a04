"""The contract any method must pass, ours or yours: `check_method(MyMethod(...))` raises AssertionError if it does not.

- a batch of C clients equals C batches of one, in training and in scoring: nothing mixes clients;
- padding changes nothing;
- the order in which uploads arrive changes nothing;
- a newcomer is folded in the same whoever is folded in beside it, or the method says that it cannot;
- only the names in `leaves_device` leave it;
- stopping and going on from saved tensors equals not stopping;
- it learns a checkerboard: even users like even items, odd users odd ones.

A method that states its rounds may do something else in each of them, so each of them is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedrecgel.channels.base import Plain
from fedrecgel.channels.sums import add_up
from fedrecgel.data.federation import ClientBatch, Federation, Newcomers
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.local import LocalEngine
from fedrecgel.engine.run import run
from fedrecgel.engine.store import ClientStore
from fedrecgel.errors import ConfigError
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import ClientResult, Download, Problem, Server
from fedrecgel.tables import State
from fedrecgel.tensors import Factors, Summed, Tensors, copy

TOLERANCE = 1e-10
"""Relative, in float64: room for another order of summation, not for a mistake."""
NEWCOMERS = 20
"""Users of the checkerboard who are folded in."""


def check_method(method: Method, *, learns: bool = True, rounds: int = 60, newcomers: float = 0.9) -> None:
    """Run the whole contract.

    Args:
        method: with hyper-parameters that learn within `rounds` on 40 clients.
        learns: False for a reference that cannot tell users apart.
        rounds: how long the checkerboard may take.
        newcomers: share of those folded in who must be told apart; 0.6 is better than chance, for methods whose shared
            parts hold little.
    """
    check_batch_independence(method)
    check_scores_apart(method)
    check_padding_invariance(method)
    check_upload_order(method)
    check_fold_in(method)
    check_only_sends_leaves(method)
    check_secrets(method)
    check_resuming(method)
    if learns:
        check_checkerboard(method, rounds, newcomers)


def check_batch_independence(method: Method) -> None:
    """Training clients together equals training each alone."""
    for setting in _each_round(method):
        together = setting.update(torch.arange(8))
        for row in range(8):
            alone = setting.update(torch.tensor([row]))
            own = _whole(together.private.of(slice(row, row + 1)))
            _same(own, _whole(alone.private), f"private state of client {row} trained alone")
            _same(_sent(together, row, setting), _sent(alone, 0, setting), f"upload of client {row} trained alone")


def check_scores_apart(method: Method) -> None:
    """Scoring clients together equals scoring each alone."""
    setting = _Setting(method)
    last = list(run(method, setting.engine, setting.server, method.rounds or 1, setting.draws))[-1].server
    items = torch.arange(setting.split.n_items)

    def score(ids: Tensor) -> Tensor:
        history, down = setting.engine.federation.history(ids), method.broadcast(last, ids)
        return method.score(setting.engine.store.read(ids), down, history, items.expand(len(ids), -1))

    together = score(torch.arange(8))
    for row in range(8):
        alone = score(torch.tensor([row]))
        _same({"scores": together[row]}, {"scores": alone[0]}, f"client {row} scored alone")


def check_padding_invariance(method: Method) -> None:
    """Extra padded examples and rows change nothing."""
    ids = torch.arange(5)
    for setting in _each_round(method):
        plain = setting.update(ids)
        padded = setting.update(ids, lambda batch: _widen(batch, 7))
        _same(_whole(plain.private), _whole(padded.private), "private state with more padding")
        for row in range(len(ids)):
            _same(_sent(plain, row, setting), _sent(padded, row, setting), "upload with more padding")


def check_upload_order(method: Method) -> None:
    """The server does not care who answers first."""
    for setting in _each_round(method):
        parts = [setting.update(ids).upload for ids in (torch.arange(3), torch.arange(3, 5), torch.arange(5, 9))]
        servers = []
        for order in ((0, 1, 2), (2, 0, 1)):
            inbox = add_up([parts[k] for k in order], setting.split.n_items, method.server_needs)
            server = Server(copy(setting.server.shared), copy(setting.server.kept))
            servers.append(method.server_update(server, inbox, setting.round, setting.draws))
        _same(servers[0].shared, servers[1].shared, "server after uploads in another order")
        everyone = torch.arange(setting.split.n_users)
        seen = [_received(method.broadcast(server, everyone)) for server in servers]
        _same(seen[0], seen[1], "what clients receive after uploads in another order")


def check_fold_in(method: Method) -> None:
    """Newcomers folded in together equal each alone, the shared part stays as it is, and they can be scored.

    A method that raises ConfigError has said that it cannot.
    """
    setting = _Setting(method)
    trained = list(run(method, setting.engine, setting.server, method.rounds or 1, setting.draws))[-1].server
    last = Server(copy(trained.shared))  # all that a finished run keeps
    rows, draws = setting.split.train, setting.draws.part("fold-in")
    own = Newcomers(rows, dtype=torch.float64)

    def fold_in(ids: Tensor) -> tuple[Tensors, Tensor]:
        down = method.welcome(last, len(ids))
        private = method.fold_in(setting.problem, down, own, ids, draws)
        catalogue = torch.arange(rows.n_items).expand(len(ids), -1)
        scores = method.score(private, down, own.history(ids), catalogue)
        return _whole(private.of(slice(None))), scores

    try:
        together, scores = fold_in(torch.arange(3))
    except ConfigError:
        return
    for row in range(3):
        alone, own_scores = fold_in(torch.tensor([row]))
        part = {name: value[row : row + 1] for name, value in together.items()}
        _same(part, alone, f"private part of newcomer {row} folded in alone")
        _same({"scores": scores[row]}, {"scores": own_scores[0]}, f"newcomer {row} scored alone")
    _same(last.shared, trained.shared, "server after newcomers were folded in")


def check_only_sends_leaves(method: Method) -> None:
    """Uploads carry only declared names."""
    names, declared = set[str](), method.leaves_device()
    for setting in _each_round(method):
        upload = setting.update(torch.arange(4)).upload
        names |= {*upload.dense, *upload.rows}
    assert names <= declared, f"{sorted(names - declared)} leave the device but `leaves_device` does not say so"


def check_secrets(method: Method) -> None:
    """On nodes, each with a secret, devices train, and what all of them start with is the same everywhere."""
    started = []
    for secret in (b"one node", b"another"):
        setting = _Setting(method, secret=secret)
        setting.update(torch.arange(4))
        start = setting.engine.store.everyone()
        started.append({**start.stacks, **{name: table.dense() for name, table in start.tables.items()}})
    for name, value in started[0].items():
        assert torch.equal(value, started[1][name]), (
            f"all clients start with '{name}', so it should come from draws.public"
        )


def check_resuming(method: Method) -> None:
    """Three rounds, or all that a method states, equal two in three, saved and loaded, and the others."""
    straight, parted = _Setting(method), _Setting(method)
    rounds = max(3, method.rounds or 0)
    last = list(run(method, straight.engine, straight.server, rounds, straight.draws))[-1].server
    stop = 2 * rounds // 3
    halfway = list(run(method, parted.engine, parted.server, stop, parted.draws))[-1].server
    saved = State.unpack(copy(parted.engine.store.everyone().pack()))
    fresh = _Setting(method)
    fresh.engine.store.load(saved)
    halfway = Server(copy(halfway.shared), copy(halfway.kept))
    resumed = list(run(method, fresh.engine, halfway, rounds, fresh.draws, start=stop))[-1].server
    for name, value in last.shared.items():
        assert torch.equal(value, resumed.shared[name]), f"'{name}' differs after resuming"
    found, wanted = (_whole(end.engine.store.everyone().of(slice(None))) for end in (fresh, straight))
    for name, value in wanted.items():
        assert torch.equal(value, found[name]), f"private '{name}' differs after resuming"


def check_checkerboard(method: Method, rounds: int, newcomers: float = 0.9) -> None:
    """Unseen items of the own colour score above those of the other for nine users in ten, and for newcomers."""
    users, items = np.meshgrid(np.arange(40), np.arange(120), indexing="ij")
    own = (users + items) % 2 == 0
    shown = own & (np.random.default_rng(0).random(own.shape) < 0.6)
    split = Interactions.from_frame({"user": users[shown], "item": items[shown]}).split(candidates=20)
    method = method.settled(Problem(split.n_users, split.n_items, torch.float64))
    setting = _Setting(method, split)
    rounds = max(rounds, method.rounds or 0)
    server = list(run(method, setting.engine, setting.server, rounds, setting.draws))[-1].server
    everyone = torch.arange(split.n_users)
    down = method.broadcast(server, everyone)
    history = setting.engine.federation.history(everyone)
    catalogue = torch.arange(split.n_items).expand(split.n_users, -1)
    scores = method.score(setting.engine.store.read(everyone), down, history, catalogue)
    same, unseen = torch.from_numpy(own), torch.from_numpy(~shown)
    right = _mean_where(scores, same & unseen) > _mean_where(scores, ~same & unseen)
    assert right.double().mean() >= 0.9, f"the checkerboard is learnt for {right.double().mean():.0%} of users only"
    ids = everyone[:NEWCOMERS]
    try:
        down = method.welcome(Server(server.shared), len(ids))
    except ConfigError:
        return
    fresh = Newcomers(split.train, dtype=torch.float64)
    private = method.fold_in(setting.problem, down, fresh, ids, setting.draws.part("fold-in"))
    scores = method.score(private, down, fresh.history(ids), catalogue[ids])
    right = _mean_where(scores, (same & unseen)[ids]) > _mean_where(scores, (~same & unseen)[ids])
    assert right.double().mean() >= newcomers, f"fold-in is right for {right.double().mean():.0%} only"


class _Setting:
    """A small ragged federation in float64, with a server and an engine."""

    def __init__(self, method: Method, split: Split | None = None, secret: bytes = b"") -> None:
        self.method, self.draws, self.split = method, Draws(11, secret), split or _random_split()
        self.problem = Problem(self.split.n_users, self.split.n_items, torch.float64)
        store = ClientStore(method, self.problem, self.draws)
        federation = Federation(self.split, dtype=torch.float64)
        self.engine = LocalEngine(method, federation, Plain(), store, self.draws)
        self.server: Server = method.init_server(self.problem, self.draws.public)
        self.round = 0

    def advance(self) -> None:
        """Train a round with everyone that the method asks."""
        (after,) = run(self.method, self.engine, self.server, self.round + 1, self.draws.public, start=self.round)
        self.server, self.round = after.server, self.round + 1

    def update(self, ids: Tensor, change: object = None) -> ClientResult:
        """One `client_update`, on a changed batch if asked."""
        down = self.method.broadcast(self.server, ids)
        batch = self.engine.federation.batch(ids, self.round, self.draws, negatives=self.method.samples_negatives)
        if callable(change):
            batch = change(batch)
        private = self.engine.store.read(ids)
        return self.method.client_update(private, down, batch, self.round, self.draws)


def _each_round(method: Method) -> Iterator[_Setting]:
    """The first round, and each other one of a method that states its rounds."""
    setting = _Setting(method)
    yield setting
    for _ in range(1, method.rounds or 1):
        setting.advance()
        yield setting


def _random_split() -> Split:
    generator = np.random.default_rng(5)
    sizes = generator.integers(5, 25, 12)
    users = np.repeat(np.arange(12), sizes)
    items = np.concatenate([generator.choice(140, size, replace=False) for size in sizes])
    return Interactions.from_frame({"user": users, "item": items}).split(candidates=30)


def _widen(batch: ClientBatch, by: int) -> ClientBatch:
    names = ("items", "labels", "mask", "rows", "row_counts", "row_mask", "slots")
    wider: dict[str, Any] = {name: pad(getattr(batch, name), (0, by)) for name in names}
    return replace(batch, **wider)


def _sent(result: ClientResult, row: int, setting: _Setting) -> Tensors:
    """What one client sends, with tables over the catalogue dense."""
    upload = result.upload
    sent: Tensors = {}
    for name, value in upload.dense.items():
        if isinstance(value, Summed):
            raise AssertionError(f"'{name}' was summed over clients before it left the devices")  # noqa: TRY004
        sent[name] = (value.each() if isinstance(value, Factors) else value)[row]
    for name, value in upload.rows.items():
        table = value.new_zeros(setting.split.n_items, value.shape[2])
        sent[name] = table.index_add_(0, upload.at[row], value[row])
    return {**sent, "weight": upload.weight[row]}


def _received(down: Download) -> Tensors:
    """All that clients receive of their own, with tables dense."""
    return {**down.each, **{name: table.dense() for name, table in down.tables.items()}}


def _whole(state: State) -> Tensors:
    """All that is private, with tables dense."""
    return {**state.tensors, **{name: table.dense() for name, table in state.tables.items()}}


def _mean_where(scores: Tensor, mask: Tensor) -> Tensor:
    return (scores * mask).sum(1) / mask.sum(1)


def _same(found: Tensors, wanted: Tensors, what: str) -> None:
    assert found.keys() == wanted.keys(), f"{what}: names differ"
    for name, value in wanted.items():
        size = 1 + float(value.abs().max()) if value.numel() and value.is_floating_point() else 0.0
        gap = (found[name].double() - value.double()).abs().max() if value.numel() else torch.zeros(())
        assert gap <= TOLERANCE * size, f"{what}: '{name}' differs by {gap:.2e}"
