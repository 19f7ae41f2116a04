"""A round that begins with an exchange: who is left out, what is repeated, what a node refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import problem_of, random_split
from tests.engine.flower.inprocess import InProcess, Tamper, config_of
from tests.extension.test_channel import Mine

from fedrecgel.channels.registry import CHANNELS, register
from fedrecgel.draws import Draws
from fedrecgel.engine.base import Trained
from fedrecgel.engine.flower.asking import RemoteRun
from fedrecgel.engine.flower.engine import FlowerEngine
from fedrecgel.engine.flower.exchange import FILE, State, keep, take
from fedrecgel.engine.flower.hidden import MESSAGE_BYTES
from fedrecgel.engine.flower.roster import Roster
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import IncompleteError, PolicyError

SPLIT = random_split(n_users=14, n_items=130)
BAD_NODE = 101


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(Mine)
    yield
    del CHANNELS["mine"]


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    return write_shards(SPLIT, tmp_path, 3)


def trained(courier: InProcess, channel: str = "mine", repeats: int = 1, **options: Any) -> Trained:
    flower = {"min_answers": 0.3, "repeats": repeats}
    config = config_of(run={"channel": channel}, flower=flower, method=options)
    roster = Roster(courier, config.flower)
    roster.gather()
    run, method = RemoteRun("run", json.dumps(config.to_dict())), config.method.build()
    problem = problem_of(SPLIT)
    engine = FlowerEngine(method, config.channel(), problem, roster, courier, run, config.flower, config.gate)
    return engine.train(method.init_server(problem, Draws(0)), torch.arange(14), 1)


def lose(kind: str, times: int) -> Tamper:
    """One node's answers of this kind get lost."""
    left = times

    def tamper(node: int, found: str, answer: Letter) -> list[Letter | Lost]:
        nonlocal left
        if node == BAD_NODE and found == kind and left:
            left -= 1
            return [Lost("no answer within 5 s")]
        return [answer]

    return tamper


def kinds(courier: InProcess) -> list[str]:
    return [kind for kind, _, _ in courier.sent if kind != "hello"]


def test_an_exchange_is_one_letter_more_and_without_one_there_is_none(places: list[Path]) -> None:
    for channel, wanted in (("mine", ["prepare"] * 3 + ["train"] * 3), ("plain", ["train"] * 3)):
        courier = InProcess(places)
        trained(courier, channel)
        assert kinds(courier) == wanted
        told = [letter for kind, _, letter in courier.sent if kind == "train"]
        assert all(
            ("cohort" in letter.tensors, "messages" in letter.about) == 2 * (channel == "mine",) for letter in told
        )


def test_a_node_that_misses_the_exchange_is_left_out(places: list[Path]) -> None:
    found, plain = (
        trained(InProcess(places, lose("prepare", 9))),
        trained(InProcess(places, lose("train", 9)), "plain", 0),
    )
    assert found.n_answers == plain.n_answers == 9
    assert found.refused == plain.refused == {"lost": 5}
    for name, value in plain.inbox.mean().items():
        torch.testing.assert_close(found.inbox.mean()[name], value, rtol=0, atol=2.0**-29)


def test_a_node_lost_after_the_exchange_has_the_round_repeated_without_it(places: list[Path]) -> None:
    courier = InProcess(places, lose("train", 9))
    found, plain = trained(courier), trained(InProcess(places, lose("train", 9)), "plain", 0)
    assert kinds(courier) == ["prepare"] * 3 + ["train"] * 3 + ["prepare"] * 2 + ["train"] * 2
    assert found.n_answers == 9
    for name, value in plain.inbox.mean().items():
        torch.testing.assert_close(found.inbox.mean()[name], value, rtol=0, atol=2.0**-29)
    messages = [letter.about["messages"] for kind, _, letter in courier.sent if kind == "train"]
    assert messages[0] != messages[3], "a new exchange has new secrets"


def test_a_sum_whose_masks_do_not_cancel_is_never_taken(places: list[Path]) -> None:
    with pytest.raises(IncompleteError, match=r"Masks cancel only if all participants answer. Missing: \[5\]"):
        trained(InProcess(places, lose("train", 9)), repeats=0)


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"round": 0}, "late"),
        ({"message": "00" * (MESSAGE_BYTES + 1)}, "message"),
        ({"message": "no hex"}, "unreadable"),
        ({"message": None}, "unreadable"),
    ],
    ids=["late", "long", "no hex", "none"],
)
def test_a_bad_message_is_left_out(places: list[Path], about: dict[str, object], reason: str) -> None:
    def tamper(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        return [Letter({**answer.about, **about})] if node == BAD_NODE and kind == "prepare" else [answer]

    found = trained(InProcess(places, tamper))
    assert found.refused == {reason: 5}
    assert found.n_answers == 9


def test_weights_count_and_are_bounded_behind_masks_too(places: list[Path]) -> None:
    def claim(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        greedy = node == BAD_NODE and kind == "train"
        weight = {"weight": answer.tensors["weight"] + 1e12} if greedy else {}
        return [Letter(answer.about, {**answer.tensors, **weight})]

    found, plain = (trained(InProcess(places), channel, weighting="examples") for channel in ("mine", "plain"))
    for name, value in plain.inbox.mean().items():
        torch.testing.assert_close(found.inbox.mean()[name], value, rtol=0, atol=2.0**-29)
    with pytest.raises(IncompleteError, match="Missing"):
        trained(InProcess(places, claim), weighting="examples")


def test_a_node_covers_once_under_the_same_secret(places: list[Path]) -> None:
    """A server that asks twice could subtract one answer from the other."""
    courier = InProcess(places)
    trained(courier)
    node, letter = next((node, letter) for kind, node, letter in courier.sent if kind == "train")
    ((_, again),) = courier.exchange("train", {node: letter}, 1.0)
    assert isinstance(again, Letter)
    assert "should follow 'prepare'" in again.about["error"]


def test_the_secret_of_an_exchange_is_kept_apart_and_taken_once(tmp_path: Path) -> None:
    old, new = (State("prepare", f"round {number}", 7, secret) for number, secret in ((3, "01"), (4, "02")))
    keep(tmp_path, old)
    keep(tmp_path, new)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert take(tmp_path, "prepare", "round 4", 7) == new
    for number in (4, 3):
        with pytest.raises(PolicyError, match=f"should follow 'prepare', for the same sum. .*: round {number}"):
            take(tmp_path, "prepare", f"round {number}", 7)
    for stage, about, participant in (("share", "round 4", 7), ("prepare", "round 5", 7), ("prepare", "round 4", 8)):
        keep(tmp_path, replace(new, messages={5: "00"}, clients={5: 2}))
        with pytest.raises(PolicyError):
            take(tmp_path, stage, about, participant)
        assert not (tmp_path / FILE).exists(), "what did not fit is gone, too"
