"""Asking nodes: letters out, answers in, those that gave no good answer again."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from fedrecgel.engine.flower.roster import POLL_SECONDS, Roster
from fedrecgel.engine.flower.settings import FlowerSettings
from fedrecgel.engine.flower.wire import ANSWER_BYTES, Courier, Letter, Lost, pack_download, shortened
from fedrecgel.engine.gate import Refusal
from fedrecgel.errors import IncompleteError
from fedrecgel.methods.messages import Download
from fedrecgel.tensors import Ids, Tensors

T = TypeVar("T")


@dataclass(frozen=True)
class RemoteRun:
    """What a letter says about the run it belongs to."""

    name: str
    """Names the folder in which nodes keep the private state of this run."""
    work: str
    """The settings, as text that nodes turn into `Work`."""


@dataclass(frozen=True)
class Taken(Generic[T]):
    """An answer that counts."""

    node: int
    asked: Ids
    """The clients the node was asked for."""
    value: T
    n_clients: int
    """For how many of them it counts."""


@dataclass
class Answers(Generic[T]):
    """What came back."""

    taken: list[Taken[T]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    bytes_up: int = 0
    bytes_down: int = 0
    notes: list[str] = field(default_factory=list)

    def in_order(self) -> list[T]:
        """By client, not by arrival."""
        return [one.value for one in sorted(self.taken, key=lambda one: int(one.asked.min()))]

    @property
    def n_clients(self) -> int:
        """For how many clients there is an answer that counts."""
        return sum(one.n_clients for one in self.taken)

    def refuse(self, node: int, asked: Ids, refusal: Refusal, reason: str = "") -> None:
        """Count an answer that is left out."""
        self.refused[str(refusal)] += len(asked)
        self.notes.append(f"node {node}: {reason or f'refused ({refusal})'}")

    def compare(self, judge: Callable[[list[T]], list[tuple[T, int] | Refusal]]) -> list[Ids]:
        """Judge all answers beside each other; the clients of those that are left out."""
        before, self.taken, left_out = self.taken, [], []
        for one, found in zip(before, judge([one.value for one in before]), strict=True):
            if isinstance(found, Refusal):
                self.refuse(one.node, one.asked, found)
                left_out.append(one.asked)
            else:
                self.taken.append(Taken(one.node, one.asked, *found))
        return left_out


@dataclass(frozen=True)
class Asking:
    """The nodes of a run and the way to them."""

    roster: Roster
    courier: Courier
    run: RemoteRun
    settings: FlowerSettings

    def ask(
        self,
        kind: str,
        about: dict[str, object],
        told: Tensors,
        down: Download | None,
        ids: Ids,
        judge: Callable[[Letter, Ids], tuple[T, int]],
        answer_bytes: Callable[[int], int],
        repeats: int | None = None,
        compare: Callable[[list[T]], list[tuple[T, int] | Refusal]] | None = None,
        own: Callable[[Ids], dict[str, object]] = lambda asked: {},
    ) -> Answers[T]:
        """Ask the nodes that host these clients, and those that gave no good answer again if too few did.

        Args:
            kind: of letter.
            about: facts for every node.
            told: tensors for every node.
            down: what clients receive, each its own part.
            ids: the clients.
            judge: the value of an answer and for how many clients it counts; a Refusal if it is no good.
            answer_bytes: what an answer for so many clients weighs; of one that is much longer nothing is read.
            repeats: how often nodes are asked again; by default as the settings say.
            compare: the same of all good answers beside each other.
            own: facts for the node that hosts these clients.

        Raises:
            IncompleteError: too few good answers.
        """
        needed = max(1, math.ceil(self.settings.min_answers * len(ids)))
        answers, pending = Answers[T](), ids
        about = {**about, "run": self.run.name, "work": self.run.work}
        for _ in range(1 + (self.settings.repeats if repeats is None else repeats)):
            asked = self._without_resting(self._reachable(pending), needed - answers.n_clients, answers)
            letters = {
                node: Letter(
                    {**about, **own(mine)},
                    {"ids": mine, **told, **_part_of(down, mine, ids)},
                    answer_bytes=2 * answer_bytes(len(mine)) + ANSWER_BYTES,
                )
                for node, mine in asked.items()
            }
            answers.bytes_down += sum(letter.n_bytes for letter in letters.values())
            for node, letter in self.courier.exchange(kind, letters, self.settings.round_seconds):
                key = self.roster.key_of(node)
                try:
                    answers.bytes_up += _weight(letter)
                    restarts = self._lost_state(key, letter)
                    value, n_clients = _judge(letter, asked[node], pending, judge)
                except Refusal as refusal:
                    answers.refuse(node, asked[node], refusal, _reason(letter))
                else:
                    answers.taken.append(Taken(node, asked[node], value, n_clients))
                    pending = pending[~torch.isin(pending, asked[node])]
                    if kind == "train" and n_clients:
                        self.roster.bindings.join(self.run.name, key, int(str(about["round"])), again=restarts)
                if isinstance(letter, Lost):
                    self.roster.rests.silent(key)
                else:
                    self.roster.rests.answered(key)
            self.roster.bindings.save_joined()
            if compare is not None:
                pending = torch.cat([pending, *answers.compare(compare)])
            if answers.n_clients >= needed:
                return answers
            if not len(pending):
                break
        raise IncompleteError(
            f"Of {len(ids)} clients at least {needed} should answer '{kind}' (flower.min_answers). "
            f"Found {answers.n_clients}. " + (" ".join(answers.notes[-3:]) or "Their nodes cannot be reached.")
        )

    def _without_resting(self, asked: dict[int, Tensor], needed: int, answers: Answers[T]) -> dict[int, Tensor]:
        """Leave out nodes that were silent lately, unless too few clients would be left."""
        rests, key_of = self.roster.rests, self.roster.key_of
        awake = {node: mine for node, mine in asked.items() if not rests.resting(key_of(node))}
        if sum(len(mine) for mine in awake.values()) < needed:
            return asked
        for node in asked.keys() - awake.keys():
            rests.missed(key_of(node))
            answers.refused["silent"] += len(asked[node])
        return awake

    def _lost_state(self, key: str, letter: Letter | Lost) -> bool:
        """Whether a node has taken part in this run and no longer knows of it, and may start anew.

        Raises:
            Refusal: it may not.
        """
        joined = self.roster.bindings.joined.get(self.run.name, {}).get(key)
        if joined is None or isinstance(letter, Lost) or "since" not in letter.about:
            return False
        since = letter.about["since"]  # the first round its files know of
        if type(since) is int and since <= joined:
            return False
        restarts = self.settings.lost_state == "restart"
        outcome = "they start anew" if restarts else "its answers are left out (flower.lost_state)"
        self.roster.bindings.warn(f"{key} has lost what its users learnt in this run: {outcome}.")
        if not restarts:
            raise Refusal("state lost")
        return True

    def _reachable(self, ids: Ids) -> dict[int, Tensor]:
        """Nodes of these clients; when none is there, wait for one as long as for a straggler."""
        deadline = time.monotonic() + self.settings.round_seconds
        while not (found := self.roster.hosting(ids)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return found


def _weight(letter: Letter | Lost) -> int:
    """Bytes of an answer.

    Raises:
        Refusal: it is nested too deeply.
    """
    try:
        return 0 if isinstance(letter, Lost) else letter.n_bytes
    except RecursionError as error:
        raise Refusal("unreadable") from error


def _judge(
    letter: Letter | Lost, asked: Tensor, pending: Tensor, judge: Callable[[Letter, Ids], tuple[T, int]]
) -> tuple[T, int]:
    """The answer, if there is one and it is good."""
    if isinstance(letter, Lost):
        raise Refusal("lost")
    if "error" in letter.about:
        raise Refusal("error")
    if not bool(torch.isin(asked, pending).all()):
        raise Refusal("twice")
    try:
        return judge(letter, asked)
    except Refusal:
        raise
    except Exception as error:  # whatever a hostile answer makes the judge raise concerns that answer only
        raise Refusal("unreadable") from error


def _part_of(down: Download | None, some: Tensor, ids: Tensor) -> Tensors:
    """What some of the clients receive, if anything is sent."""
    return {} if down is None else pack_download(down, _positions(some, ids))


def _positions(some: Tensor, ids: Tensor) -> Int[Tensor, " i"]:
    """Where in `ids` each of `some` stands."""
    order = ids.argsort()
    return order[torch.searchsorted(ids[order], some)]


def _reason(letter: Letter | Lost) -> str:
    """What is said of a refusal, if anything is."""
    return letter.reason if isinstance(letter, Lost) else shortened(letter.about.get("error", ""))
