"""Sums under masks, the server's side: five letters to every node, and whoever is lost on the way is left out.

"prepare" asks for cards with fresh keys, "share" for sealed letters to neighbours, "train" or "rank" for the masked
sum of a node's users, "confirm" for each node's word on who is in the sum, "unmask" for what opens it. The server
passes on and adds up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from fedrecgel.channels.base import RoundSetup, ServerHalf
from fedrecgel.channels.sums import Received, add_up
from fedrecgel.engine.flower.asking import Answers, Asking
from fedrecgel.engine.flower.peers import read_card
from fedrecgel.engine.flower.wire import Letter
from fedrecgel.engine.gate import Refusal
from fedrecgel.engine.uplink import pass_on
from fedrecgel.errors import IncompleteError
from fedrecgel.methods.messages import Download, Upload
from fedrecgel.tensors import Ids

MESSAGE_BYTES = 1 << 20
"""The longest message a node may put into an exchange."""


class Opened(NamedTuple):
    """A sum, and what it took."""

    received: Received
    bytes_up: int
    bytes_down: int
    refused: Counter[str]
    loss_known: bool
    """Whether clients minimise anything."""


@dataclass(frozen=True)
class Question:
    """What a sum is asked for with."""

    kind: str
    """The letter that carries the masked sum: "train" or "rank"."""
    purpose: str
    """The same, and of what: part of what nodes sign."""
    about: dict[str, object]
    setup: RoundSetup
    down: Callable[[Ids], Download]
    """What these clients download."""
    judge: Callable[[Letter, Ids, RoundSetup], Upload | None]
    """What arrived of a node; a Refusal if it is no good."""
    answer_bytes: Callable[[RoundSetup], int]


class Hidden:
    """Takes sums that show nothing of single nodes."""

    def __init__(self, asking: Asking, inbound: ServerHalf) -> None:
        self._asking, self._inbound = asking, inbound

    def take(self, question: Question) -> Opened:
        """The sum over all nodes that stay; a sum that cannot be opened is asked for again, from the start.

        Raises:
            IncompleteError: too few stay, every time.
        """
        for left in reversed(range(1 + self._asking.settings.repeats)):
            try:
                return self._try(question)
            except IncompleteError:
                if not left:
                    raise
        raise AssertionError("a sum is tried at least once")

    def _try(self, question: Question) -> Opened:
        all_answers: list[Answers[Any]] = []
        common: dict[str, object] = {"round": question.setup.round, "purpose": question.purpose}

        def ask(kind: str, about: dict[str, object], ids: Ids, judge: Any, most: int, **more: Any) -> list[Any]:
            found = self._asking.ask(
                kind, {**common, **about}, {}, more.pop("down", None), ids, judge, lambda n: most, **more
            )
            all_answers.append(found)
            return found.in_order()

        def now(letter: Letter) -> Letter:
            if letter.about.get("round") != question.setup.round:
                raise Refusal("late")
            return letter

        def judge_card(letter: Letter, asked: Ids) -> tuple[tuple[Ids, bytes], int]:
            message = bytes.fromhex(now(letter).about["message"])
            card = read_card(message)
            if len(message) > MESSAGE_BYTES or (card.participant, card.clients) != (int(asked.min()), len(asked)):
                raise Refusal("message")
            return (asked, message), len(asked)

        cards = ask("prepare", {}, question.setup.cohort, judge_card, MESSAGE_BYTES)
        messages = {int(asked.min()): message for asked, message in cards}
        cohort = torch.cat([asked for asked, _ in cards])
        publics = {participant: read_card(message).public for participant, message in messages.items()}
        setup = replace(question.setup, cohort=cohort, messages=publics)

        def judge_letters(letter: Letter, asked: Ids) -> tuple[tuple[Ids, dict[int, bytes]], int]:
            found = {int(name): bytes.fromhex(text) for name, text in now(letter).about["letters"].items()}
            return (asked, found), len(asked)

        texts = {str(name): message.hex() for name, message in messages.items()}
        shared = ask("share", {"messages": texts}, cohort, judge_letters, MESSAGE_BYTES, repeats=0)
        setup = replace(setup, envelopes=pass_on({int(asked.min()): letters for asked, letters in shared}))
        ids = torch.cat([asked for asked, _ in shared])

        def own(asked: Ids) -> dict[str, object]:
            letters = setup.envelopes[int(asked.min())]
            return {"envelopes": {str(sender): letter.hex() for sender, letter in letters.items()}}

        sharers = sorted(setup.envelopes)

        def judge_sum(letter: Letter, asked: Ids) -> tuple[tuple[Ids, Upload | None, bool], int]:
            upload = question.judge(now(letter), asked, setup)
            return (asked, upload, letter.about.get("loss") is not None), len(asked)

        sums = ask(
            question.kind,
            {**question.about, "sharers": sharers},
            ids,
            judge_sum,
            question.answer_bytes(setup),
            repeats=0,
            down=question.down(ids),
            own=own,
        )
        taken = [(asked, upload, loss) for asked, upload, loss in sums if upload is not None]
        if not taken:
            raise IncompleteError("Some node should send a sum. None did.")
        received = add_up(
            [
                replace(upload, ids=asked.min()[None], at=upload.at[:1], weight=upload.weight[:1])
                for asked, upload, _ in taken
            ],
            setup.n_items,
            setup.needs,
            weighted=True,
        )

        def judge_revealed(letter: Letter, asked: Ids) -> tuple[tuple[int, bytes], int]:
            return (int(asked.min()), bytes.fromhex(now(letter).about["revealed"])), len(asked)

        def judge_word(letter: Letter, asked: Ids) -> tuple[tuple[Ids, str], int]:
            return (asked, bytes.fromhex(now(letter).about["word"]).hex()), len(asked)

        arrived = torch.cat([asked for asked, _, _ in taken])
        told: dict[str, object] = {"arrived": received.ids.tolist()}
        confirmed = ask("confirm", told, arrived, judge_word, MESSAGE_BYTES, repeats=0)
        words = {str(int(asked.min())): word for asked, word in confirmed}
        still = torch.cat([asked for asked, _ in confirmed])
        revealed = ask("unmask", {"words": words}, still, judge_revealed, MESSAGE_BYTES, repeats=0)
        opened = self._inbound.open_sums(received, replace(setup, revealed=dict(revealed)))
        return Opened(
            opened,
            sum(one.bytes_up for one in all_answers),
            sum(one.bytes_down for one in all_answers),
            sum((one.refused for one in all_answers), Counter[str]()),
            any(loss for _, _, loss in taken),
        )
