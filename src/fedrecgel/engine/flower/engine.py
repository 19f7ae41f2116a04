"""FlowerEngine: the server's side of a round when clients live on nodes."""

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

from fedrecgel.channels.base import Channel
from fedrecgel.engine.base import Trained
from fedrecgel.engine.flower.roster import POLL_SECONDS, Roster
from fedrecgel.engine.flower.settings import FlowerSettings
from fedrecgel.engine.flower.wire import Courier, Letter, Lost, group, pack_download
from fedrecgel.engine.gate import (
    Form,
    GateSettings,
    Refusal,
    admissible,
    check_clients,
    check_form,
    chosen,
    form_of,
)
from fedrecgel.errors import RunError
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.methods.base import Method, Need, Problem, Server, Upload
from fedrecgel.tables import State
from fedrecgel.tensors import Ids, Summed

T = TypeVar("T")


@dataclass(frozen=True)
class RemoteRun:
    """What a letter says about the run it belongs to."""

    name: str
    """Names the folder in which nodes keep the private state of this run."""
    work: str
    """The settings, as text that nodes turn into `Work`."""


@dataclass
class Answers(Generic[T]):
    """What came back."""

    taken: list[tuple[int, T]] = field(default_factory=list)
    """With the lowest client asked, which gives them an order that does not depend on who was faster."""
    refused: Counter[str] = field(default_factory=Counter)
    bytes_up: int = 0
    bytes_down: int = 0
    notes: list[str] = field(default_factory=list)

    def in_order(self) -> list[T]:
        """By client, not by arrival."""
        return [value for _, value in sorted(self.taken, key=lambda pair: pair[0])]


class FlowerEngine:
    """Sends one letter per node and round. Private state stays on the nodes: here it is only a number of rounds."""

    def __init__(
        self,
        method: Method,
        channel: Channel,
        problem: Problem,
        roster: Roster,
        courier: Courier,
        run: RemoteRun,
        settings: FlowerSettings,
        gate: GateSettings,
    ) -> None:
        self.method, self.channel, self.problem = method, channel, problem
        self._roster, self._courier, self._run, self._settings, self._gate = roster, courier, run, settings, gate
        self._finished = 0

    def everyone(self) -> State:
        """Names what the nodes keep: the state after so many rounds."""
        return State({"rounds": torch.tensor([self._finished])})

    def load(self, state: State) -> None:
        """Go on from, or rank with, what the nodes had after so many rounds."""
        self._finished = int(state["rounds"])

    def population(self) -> Ids:
        """Everybody on a node that was ever here."""
        return self._roster.population()

    def train(self, server: Server, cohort: Ids, round: int) -> Trained:
        """Let the nodes train their clients, and take in every answer that passes the gate.

        Raises:
            RunError: too few answers, after all repetitions.
        """
        forms, losses, from_nodes = form_of(self.method, server, self.problem, round), [], Counter[str]()

        def judge(letter: Letter, asked: Ids) -> tuple[Upload | None, int]:
            if letter.about.get("round") != round:
                raise Refusal("late")
            upload = self._upload(letter, asked, forms)
            loss, own = letter.about["loss"], letter.about["refused"]
            if loss is not None and (not isinstance(loss, float) or not math.isfinite(loss)):
                raise Refusal("loss")
            from_nodes.update({str(reason): int(count) for reason, count in own.items()})
            n_answers = 0 if upload is None else len(upload.ids)
            from_nodes["norm"] += len(letter.tensors["ids"]) - n_answers
            if loss is not None:
                losses.append(loss)
            return upload, n_answers

        answers = self._ask("train", {"round": round}, server, cohort, judge)
        uploads = [upload for upload in answers.in_order() if upload is not None]
        self._finished = round + 1
        n_answers = sum(len(upload.ids) for upload in uploads)
        return Trained(
            self.channel.collect(uploads, self.problem.n_items, self.method.server_needs),
            loss=torch.tensor(math.fsum(losses) / n_answers) if losses else None,
            bytes_up=answers.bytes_up,
            bytes_down=answers.bytes_down,
            n_answers=n_answers,
            refused=dict(answers.refused + from_nodes),
        )

    def _upload(self, letter: Letter, asked: Ids, forms: dict[str, Form]) -> Upload | None:
        """What a node's clients sent, if it is what was asked for; None if none of them was there.

        Raises:
            Refusal: it is something else.
        """
        rest = dict(letter.tensors)
        ids = rest.pop("ids")
        check_clients(ids, asked)
        if not len(ids):
            return None
        weight = torch.ones(
            len(ids), dtype=self.problem.dtype
        )  # set here; only a method that says so lets clients claim
        if "weight" in self.method.leaves_device():
            check_form({"weight": rest["weight"]}, {"weight": Form((), self.problem.dtype, False)}, (len(ids),))
            weight = rest.pop("weight")
        each = self.method.server_needs == Need.EACH
        found = group("each" if each else "sum", rest)
        if len(found) != len(rest):
            raise Refusal("names")
        check_form(found, forms, (len(ids),) if each else ())
        if not all(bool(torch.isfinite(value).all()) for value in found.values()):
            raise Refusal("not finite")
        rows = {name: value for name, value in found.items() if each and forms[name].over_items}
        dense = {name: value if each else Summed(value) for name, value in found.items() if name not in rows}
        n_rows = self.problem.n_items if rows else 0
        upload = Upload(ids, dense, rows, torch.arange(n_rows).expand(len(ids), -1), weight)
        good = admissible(upload, self._gate)
        if not good.any() or not (each or good.all()):  # a sum stands or falls as a whole
            raise Refusal("norm")
        return upload if good.all() else chosen(upload, good)

    def ranks(self, server: Server, held_out: str, against: str) -> Ranks:
        """Let every node rank for its own clients; two numbers per client come back."""

        def judge(letter: Letter, asked: Ids) -> tuple[tuple[Tensor, Tensor, Tensor], int]:
            ids, above, tied = (letter.tensors[name] for name in ("ids", "above", "tied"))
            check_clients(ids, asked)
            for counts in (above, tied):
                if counts.shape != ids.shape or counts.dtype != torch.int64:
                    raise Refusal("shape")
                if bool(((counts < 0) | (counts >= self.problem.n_items)).any()):
                    raise Refusal("ranks")
            return (ids, above, tied), len(asked)

        about = {"round": self._finished, "held_out": held_out, "against": against}
        answers = self._ask("rank", about, server, self.population(), judge)
        ids, above, tied = (torch.cat(parts) for parts in zip(*answers.in_order(), strict=True))
        order = ids.argsort()
        return Ranks(above[order], tied[order])

    def _ask(
        self,
        kind: str,
        about: dict[str, object],
        server: Server,
        ids: Ids,
        judge: Callable[[Letter, Ids], tuple[T, int]],
    ) -> Answers[T]:
        """Ask the nodes that host these clients, and those that gave no good answer again if too few did."""
        needed = max(1, math.ceil(self._settings.min_answers * len(ids)))
        down = self.method.broadcast(server, ids)
        answers, pending, n_taken = Answers[T](), ids, 0
        about = {**about, "run": self._run.name, "work": self._run.work}
        for _ in range(1 + self._settings.repeats):
            asked = self._reachable(pending)
            letters = {
                node: Letter(about, {"ids": mine, **pack_download(down, _positions(mine, ids))})
                for node, mine in asked.items()
            }
            answers.bytes_down += sum(letter.n_bytes for letter in letters.values())
            for node, letter in self._courier.exchange(kind, letters, self._settings.round_seconds):
                try:
                    value, n_clients = _judged(letter, asked[node], pending, judge)
                except Refusal as refusal:
                    answers.refused[str(refusal)] += len(asked[node])
                    answers.notes.append(f"node {node}: {_reason(letter, refusal)}")
                else:
                    answers.taken.append((int(asked[node].min()), value))
                    n_taken += n_clients
                    pending = pending[~torch.isin(pending, asked[node])]
                if isinstance(letter, Letter):
                    answers.bytes_up += letter.n_bytes
            if n_taken >= needed:
                return answers
            if not len(pending):
                break
        raise RunError(
            f"Of {len(ids)} clients at least {needed} should answer '{kind}' (flower.min_answers). Found {n_taken}. "
            + (" ".join(answers.notes[-3:]) or "Their nodes cannot be reached.")
        )

    def _reachable(self, ids: Ids) -> dict[int, Tensor]:
        """Nodes of these clients; when none is there, wait for one as long as for a straggler."""
        deadline = time.monotonic() + self._settings.round_seconds
        while not (found := self._roster.hosting(ids)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return found


def _judged(
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
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        raise Refusal("unreadable") from error


def _positions(some: Tensor, ids: Tensor) -> Int[Tensor, " i"]:
    """Where in `ids` each of `some` stands."""
    order = ids.argsort()
    return order[torch.searchsorted(ids[order], some)]


def _reason(letter: Letter | Lost, refusal: Refusal) -> str:
    if isinstance(letter, Lost):
        return letter.reason
    return str(letter.about.get("error", f"refused ({refusal})"))
