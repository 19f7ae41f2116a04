"""FlowerEngine: the server's side of a round when clients live on nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from fedrecgel.channels.base import Channel, Preparation, RoundSetup
from fedrecgel.channels.sums import CLIENTS, LOSS, METRICS
from fedrecgel.engine.base import Measured, Trained, measured
from fedrecgel.engine.flower.asking import Answers, Asking, RemoteRun
from fedrecgel.engine.flower.hidden import MESSAGE_BYTES, Hidden, Question
from fedrecgel.engine.flower.roster import Roster
from fedrecgel.engine.flower.settings import FlowerSettings
from fedrecgel.engine.flower.steps import TRAIN, rank_purpose
from fedrecgel.engine.flower.wire import Courier, Letter, group
from fedrecgel.engine.gate import (
    Form,
    GateSettings,
    Refusal,
    admissible,
    check_clients,
    check_form,
    check_refusals,
    choose,
    far_off,
    form_of,
    nobodys_upload,
)
from fedrecgel.errors import IncompleteError
from fedrecgel.evaluation.metrics import metric_names
from fedrecgel.evaluation.ranking import Ranks, TieRule
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Need, Problem, Server, Upload
from fedrecgel.tables import State
from fedrecgel.tensors import Ids, Summed, Tensors

LARGEST_LOSS = 1e6
"""Of one client: no node can make the mean undefined, in single precision either."""


@dataclass(frozen=True)
class Answer:
    """What a node sent after training."""

    asked: Ids
    upload: Upload | None
    """None if none of its clients was there."""
    loss: float | None
    """The sum over those that were."""
    n_losses: int
    refused: Counter[str]
    """Uploads left out, by the node's own gate or here."""

    def without(self, far: Bool[Tensor, " k"]) -> tuple[Answer, int] | Refusal:
        """The rest of it, and of how many clients; a sum stands or falls as a whole."""
        upload = self.upload
        if upload is None or far.all():
            return Refusal("norm")
        if far.any():
            upload = choose(upload, ~far)
        refused = self.refused + Counter(norm=int(far.sum()))
        return replace(self, upload=upload, refused=refused), len(upload.ids)


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
        self._roster, self._settings, self._gate = roster, settings, gate
        self._asking = Asking(roster, courier, run, settings)
        self._inbound = channel.server()
        self._hidden = Hidden(self._asking, self._inbound)
        self._finished = 0

    def everyone(self) -> State:
        """Names what the nodes keep: the state after so many rounds."""
        return State({"rounds": torch.tensor([self._finished])})

    def load(self, state: State, *, give: bool = False) -> None:
        """Go on from, or rank with, what the nodes had after so many rounds."""
        self._finished = int(state["rounds"])

    def population(self) -> Ids:
        """Everybody on a node that was ever here; if a round is repeated after a kill, those of the first time."""
        return self._roster.bindings.begin(self._asking.run.name, self._finished, self._roster.population())

    def train(self, server: Server, cohort: Ids, round: int) -> Trained:
        """Let the nodes train their clients, and take in every answer that passes the gate.

        Raises:
            RunError: too few answers, after all repetitions.
        """
        setup = RoundSetup.of(self.method, round, cohort, self.problem.n_items, shared=server.shared)
        self.channel.check_cohort(type(self.method).__name__, len(cohort), setup)
        if self.channel.hides:
            return self._train_hidden(server, setup)
        if not len(cohort):  # a channel drew each client by chance; its noise tells nobody
            empty = nobodys_upload(self._forms(server, setup))
            self._finished = round + 1
            return Trained(self._inbound.collect([empty], setup), None, 0, 0, 0, {})
        if self.channel.prepares < Preparation.EXCHANGE:
            return self._train(server, setup, Answers())
        for left in reversed(range(1 + self._settings.repeats)):
            try:  # what one node was told of the others holds once, so all are asked again
                return self._train(server, *self._exchange(setup), repeats=0)
            except IncompleteError:
                if not left:
                    raise
        raise AssertionError("a round is tried at least once")

    def _train_hidden(self, server: Server, setup: RoundSetup) -> Trained:
        """A round whose sum is all that the server sees of it."""
        found = self._hidden.take(
            Question(
                TRAIN,
                TRAIN,
                {},
                setup,
                lambda ids: self.method.broadcast(server, ids),
                lambda letter, asked, known: self._upload(letter, asked, self._forms(server, known)),
                lambda known: self._upload_bytes(self._forms(server, known))(len(known.cohort)),
            )
        )
        self._finished = setup.round + 1
        counts = found.received.counts
        return Trained(
            found.received,
            loss=torch.tensor(counts[LOSS] / counts[CLIENTS]) if found.loss_known else None,
            bytes_up=found.bytes_up,
            bytes_down=found.bytes_down,
            n_answers=int(counts[CLIENTS]),
            refused=dict(found.refused),
        )

    def _exchange(self, setup: RoundSetup) -> tuple[RoundSetup, Answers[Any]]:
        """One public message of every node, for all of them; nodes without one are left out of the round."""

        def judge(letter: Letter, asked: Ids) -> tuple[tuple[Tensor, bytes], int]:
            message = bytes.fromhex(letter.about["message"])
            if letter.about.get("round") != setup.round:
                raise Refusal("late")
            if len(message) > MESSAGE_BYTES:
                raise Refusal("message")
            return (asked, message), len(asked)

        about: dict[str, object] = {"round": setup.round}
        told = {"cohort": setup.cohort}
        answers = self._asking.ask("prepare", about, told, None, setup.cohort, judge, lambda n: MESSAGE_BYTES)
        found = answers.in_order()
        cohort = setup.cohort[torch.isin(setup.cohort, torch.cat([asked for asked, _ in found]))]
        messages = {int(asked.min()): message for asked, message in found}
        return replace(setup, cohort=cohort, messages=messages), answers

    def _train(self, server: Server, setup: RoundSetup, exchanged: Answers[Any], repeats: int | None = None) -> Trained:
        forms = self._forms(server, setup)

        def judge(letter: Letter, asked: Ids) -> tuple[Answer, int]:
            if letter.about.get("round") != setup.round:
                raise Refusal("late")
            upload = self._upload(letter, asked, forms)
            loss, own = letter.about["loss"], letter.about["refused"]
            if loss is not None and not (isinstance(loss, float) and abs(loss) <= LARGEST_LOSS * len(asked)):
                raise Refusal("loss")
            check_refusals(own, len(asked))
            n_clients = len(letter.tensors["ids"])
            n_answers = 0 if upload is None else len(upload.ids)
            refused = Counter(own) + Counter(norm=n_clients - n_answers)
            return Answer(asked, upload, loss, n_clients, refused), n_answers

        about: dict[str, object] = {"round": setup.round}
        told: Tensors = {}
        if self.channel.prepares >= Preparation.COHORT:
            told["cohort"] = setup.cohort
        if setup.messages:
            about["messages"] = {str(name): message.hex() for name, message in setup.messages.items()}
        down = self.method.broadcast(server, setup.cohort)
        answers = self._asking.ask(
            "train", about, told, down, setup.cohort, judge, self._upload_bytes(forms), repeats, self._compare
        )
        taken = answers.in_order()
        inbox = self._inbound.collect(
            [self._named(one.upload, one.asked) for one in taken if one.upload is not None], setup
        )
        self._finished = setup.round + 1
        losses = [(one.loss, one.n_losses) for one in taken if one.loss is not None]
        n_losses = sum(count for _, count in losses)
        return Trained(
            inbox,
            loss=torch.tensor(math.fsum(loss for loss, _ in losses) / n_losses) if n_losses else None,
            bytes_up=answers.bytes_up + exchanged.bytes_up,
            bytes_down=answers.bytes_down + exchanged.bytes_down,
            n_answers=answers.n_clients,
            refused=dict(sum((one.refused for one in taken), answers.refused + exchanged.refused)),
        )

    def _compare(self, answers: list[Answer]) -> list[tuple[Answer, int] | Refusal]:
        """All answers of a round beside each other: those far above the middle are left out."""
        uploads = [self._readable(one.upload) for one in answers if one.upload is not None]
        far = iter(far_off(uploads, self._gate, summed=self.method.server_needs < Need.EACH))
        return [(one, 0) if one.upload is None else one.without(next(far)) for one in answers]

    def _forms(self, server: Server, setup: RoundSetup) -> dict[str, Form]:
        """What one client's upload must look like when it arrives."""
        forms = form_of(self.method, server, self.problem, setup.round)
        blank = {name: torch.empty(form.shape, dtype=form.dtype, device="meta") for name, form in forms.items()}
        return {
            name: Form(tuple(one.shape), one.dtype, name in forms and forms[name].over_items)
            for name, one in self._inbound.arriving(blank, setup).items()
        }

    def _upload_bytes(self, forms: dict[str, Form]) -> Callable[[int], int]:
        """What the answer for so many clients weighs: their numbers and weights, and what each or all of them send."""
        one = sum(prod(form.shape) * form.dtype.itemsize for form in forms.values())
        each = self.method.server_needs == Need.EACH
        return lambda n_clients: 16 * n_clients + (n_clients * one if each else one)

    def _named(self, upload: Upload, asked: Ids) -> Upload:
        """Under an exchange a node's upload is that of one participant."""
        if self.channel.prepares < Preparation.EXCHANGE:
            return upload
        return replace(upload, ids=asked.min()[None], at=upload.at[:1], weight=upload.weight.sum()[None])

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
        )  # set here; clients claim a weight only if their method declares it
        if "weight" in self.method.leaves_device() and not self.channel.hides:
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
        good = admissible(self._readable(upload), self._gate)
        if not good.any() or not (each or good.all()):  # a sum stands or falls as a whole
            raise Refusal("norm")
        return upload if good.all() else choose(upload, good)

    def _readable(self, upload: Upload) -> Upload:
        """What the server can judge of it: weights always."""
        return upload if self._inbound.readable else replace(upload, dense={}, rows={})

    def measure(self, server: Server, held_out: str, against: str, ks: Sequence[int], ties: TieRule) -> Measured:
        """From ranks; where the channel hides them, from sums of metrics over all nodes."""
        if not self.channel.hides:
            return measured(self.ranks(server, held_out, against), ks, ties)
        names, everyone = metric_names(ks), self._roster.population()
        setup = RoundSetup.of(self.method, self._finished, everyone, self.problem.n_items)

        def forms(known: RoundSetup) -> dict[str, Form]:
            blank = {METRICS: torch.empty(len(names), device="meta")}
            arriving = self._inbound.arriving(blank, known)
            return {name: Form(tuple(one.shape), one.dtype, False) for name, one in arriving.items()}

        found = self._hidden.take(
            Question(
                "rank",
                rank_purpose(held_out, against),
                {"held_out": held_out, "against": against},
                setup,
                lambda ids: self.method.broadcast(server, ids),
                lambda letter, asked, known: self._upload(letter, asked, forms(known)),
                lambda known: self._upload_bytes(forms(known))(len(known.cohort)),
            )
        ).received
        n_clients = found.counts[CLIENTS]
        values = (found.sums[METRICS] / n_clients).clamp(0, 1).tolist()  # rounding may leave the range
        return Measured(dict(zip(names, values, strict=True)), None)

    def ranks(self, server: Server, held_out: str, against: str) -> Ranks:
        """Let every node rank for its own clients; two numbers per client come back."""

        def judge(letter: Letter, asked: Ids) -> tuple[tuple[Tensor, Tensor, Tensor], int]:
            if letter.about.get("round") != self._finished:
                raise Refusal("late")
            if letter.tensors.keys() != {"ids", "above", "tied"}:
                raise Refusal("names")
            ids, above, tied = (letter.tensors[name] for name in ("ids", "above", "tied"))
            check_clients(ids, asked)
            if held_out == "test" and len(ids) != len(asked):  # not everybody has a validation item
                raise Refusal("clients")
            for counts in (above, tied):
                if counts.shape != ids.shape or counts.dtype != torch.int64:
                    raise Refusal("shape")
                if bool(((counts < 0) | (counts >= self.problem.n_items)).any()):
                    raise Refusal("ranks")
            if bool((above + tied >= self.problem.n_items).any()):
                raise Refusal("ranks")
            return (ids, above, tied), len(asked)

        about = {"round": self._finished, "held_out": held_out, "against": against}
        everyone = self._roster.population()
        down = self.method.broadcast(server, everyone)
        answers = self._asking.ask("rank", about, {}, down, everyone, judge, lambda n_clients: 24 * n_clients)
        ids, above, tied = (torch.cat(parts) for parts in zip(*answers.in_order(), strict=True))
        order = ids.argsort()
        return Ranks(above[order], tied[order])
