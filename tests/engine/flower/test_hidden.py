"""Sums under masks on nodes: those of plain, whoever is lost, and closed to a server that cheats."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.builders import random_split
from tests.engine.flower.inprocess import InProcess, Tamper, config_of, same, served
from tests.engine.flower.masked import SPLIT, masked_nodes, write_key

from fedrecgel.channels.accounting import spent_epsilon
from fedrecgel.channels.masking import Secret, publish
from fedrecgel.engine.flower.peers import Card, Signed, identity, sign
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import ConfigError, IncompleteError, PrivacyError
from fedrecgel.methods import base, spectral_start
from fedrecgel.runs.config import Config

STEPS = ("prepare", "share", "train", "confirm", "unmask")
SOME = STEPS if os.environ.get("FEDRECGEL_ALL_STEPS") else ("train", "unmask")
"""Where a test of every step takes long: the sum, and what opens it."""


def config(channel: str = "secagg", name: str = "fedmf", **sections: Any) -> Config:
    """One round of everybody, with enough digits to compare."""
    method = {**({"fraction": 1.0, "dim": 4} if name == "fedmf" else {}), **sections.pop("method", {})}
    evaluation = {"full": False, **sections.pop("evaluation", {})}
    run = {"channel": channel, "rounds": 1, **sections.pop("run", {})}
    if "secagg" in channel:
        sections = {"fixed_point": {"fraction_bits": 40}, "secagg": {"min_clients": 10}, **sections}
    return config_of(name, run=run, method=method, evaluation=evaluation, **sections)


def losing(step: str, nodes: set[int]) -> Tamper:
    """Nodes whose answers of one kind get lost while training."""
    trained = False

    def tamper(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        nonlocal trained
        trained |= kind == "unmask"
        lost = kind == step and node in nodes and (not trained or kind == "unmask")
        return [Lost("no answer within 5 s")] if lost else [answer]

    return tamper


@pytest.mark.parametrize(("n_lost", "step"), [(0, "train"), *product((1,), SOME), *product((3,), STEPS)])
def test_a_run_is_that_of_plain_whoever_is_lost(n_lost: int, step: str, tmp_path: Path) -> None:
    """0, 10 and a third of ten nodes; under plain the same nodes are lost, unless their sums had arrived."""
    lost = {100 + number for number in Random(n_lost).sample(range(10), n_lost)}
    left_out = lost if step not in ("confirm", "unmask") else set()
    masked, plain = (
        served(
            config(channel),
            SPLIT,
            tmp_path / channel,
            InProcess(write_shards(SPLIT, tmp_path / "shards" / channel, 10), tamper),
            simulated=False,
        )
        for channel, tamper in (("secagg", losing(step, lost)), ("plain", losing("train", left_out)))
    )
    same(masked.shared, plain.shared, 30 * 2.0**-40)
    line, expected = masked.history[0], plain.history[0]
    assert line["clients"] == expected["clients"] == 30 - 3 * len(left_out)
    assert line["loss"] == pytest.approx(expected["loss"], abs=2.0**-24)
    if not n_lost:
        assert masked.metrics == pytest.approx(plain.metrics, abs=2.0**-24)


@pytest.mark.parametrize("step", SOME)
def test_a_sum_that_cannot_be_opened_is_taken_again(step: str, tmp_path: Path) -> None:
    """Four of six nodes are lost at a step, the first time; every node has its rules, and gives the same the second."""
    gone: set[int] = set()

    def tamper(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        first = kind == step and node < 104 and node not in gone
        gone.update({node} if first else ())
        return [Lost("no answer within 5 s")] if first else [answer]

    courier = masked_nodes(tmp_path, 6, tamper)
    again = served(config(), SPLIT, tmp_path / "again", courier, simulated=False)
    assert gone == {100, 101, 102, 103}
    untouched = served(config(), SPLIT, tmp_path / "untouched", courier, simulated=False)
    same(again.shared, untouched.shared)
    assert again.history[0]["clients"] == untouched.history[0]["clients"] == 30


@pytest.mark.parametrize(("n_lost", "opened"), [(3, True), (4, False)])
def test_sums_of_a_spectral_start_are_not_opened_for_few(
    n_lost: int, opened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs 20 of 30 users here, gradients five: uploads that a server says are lost must not open it for 18."""
    monkeypatch.setattr(base, "HIDES", 5)
    monkeypatch.setattr(spectral_start, "LEAST_COHORT", 20)
    monkeypatch.setattr(spectral_start, "HIDING_COHORT", 1)
    lost = {100 + number for number in range(n_lost)}
    courier = masked_nodes(tmp_path, 10, losing("train", lost), rules=lambda number: {"min_users": 2, "min_sum": 0})
    options = {"init": "spectral", "start_rank": 4, "gmf_dim": 4, "mlp_dim": 8}
    asked = config(name="fedncf", method=options, flower={"repeats": 0})
    if opened:
        assert served(asked, SPLIT, tmp_path / "run", courier, simulated=False).history[0]["clients"] == 21
    else:
        with pytest.raises(IncompleteError, match="should cover at least 20 users"):
            served(asked, SPLIT, tmp_path / "run", courier, simulated=False)


def test_nodes_add_the_noise_of_a_budget_to_metrics_too_and_keep_losses(tmp_path: Path) -> None:
    """The multiplier follows from the budget on every node; without noise and limits the run is that of plain."""
    pytest.importorskip("dp_accounting")
    silent = {"noise_multiplier": 0.0, "clip": float("inf"), "epsilon": float("inf")}
    runs: dict[str, tuple[str, dict[str, Any]]] = {
        "plain": ("plain", {}),
        "silent": ("secagg+dp", {"dp": silent}),
        "noisy": ("secagg+dp", {"dp": {"clip": 0.5}}),
    }
    plain, quiet, noisy = (
        served(config(channel, **sections), SPLIT, tmp_path / name) for name, (channel, sections) in runs.items()
    )
    same(quiet.shared, plain.shared, 30 * 2.0**-40)
    assert quiet.metrics == pytest.approx(plain.metrics, abs=2.0**-24)
    assert 0 < noisy.summary["privacy"]["epsilon"] <= 8
    assert quiet.history[0]["loss"] is noisy.history[0]["loss"] is None
    assert all(abs(noisy.metrics[name] - value) > 2.0**-20 for name, value in quiet.metrics.items())
    about = noisy.summary["privacy"]  # one round, one measurement: two sums
    assert about["epsilon"] == pytest.approx(spent_epsilon(about["noise_multiplier"], 1.0, 2, 1e-5))
    assert any("Losses were not sent" in text for text in noisy.summary["warnings"])
    assert all(not value.allclose(plain.shared[name], atol=1e-3) for name, value in noisy.shared.items())


def test_local_noise_leaves_nothing_to_measure_on_nodes(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    with pytest.raises(ConfigError, match=r"nothing can be measured there.*--final"):
        served(config("local-dp"), SPLIT, tmp_path / "measured")
    answers: list[Letter] = []

    def listen(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        answers.append(answer)
        return [answer]

    courier = InProcess(write_shards(SPLIT, tmp_path / "shards", 3), listen)
    served(config("local-dp", run={"final": True}), SPLIT, tmp_path / "final", courier, simulated=False)
    losses = [answer.about["loss"] for answer in answers if "loss" in answer.about]
    assert losses == [None] * 3


def test_what_leaves_nodes_looks_like_chance_and_says_nothing_else(tmp_path: Path) -> None:
    """Weights, losses, metrics: all in the sum. Numbers of nodes with one user and with ten are as long."""
    answers: list[tuple[str, Letter]] = []

    def listen(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        answers.append((kind, answer))
        return [answer]

    weighted = config(name="fedncf", method={"weighting": "examples", "fraction": 1.0})
    masked = served(weighted, SPLIT, tmp_path / "masked", masked_nodes(tmp_path, 4, listen), simulated=False)
    assert masked.summary["privacy"]["masks"] == "run"
    assert masked.ranks.against == {}
    for kind in ("train", "rank"):
        found = [answer for name, answer in answers if name == kind]
        assert len(found) == 4
        for answer in found:
            assert answer.about.keys() <= {"round", "loss", "refused", "since"}
            assert answer.about.get("refused", {}) == {}
            assert answer.about.get("loss", 0.0) == 0.0
            assert all(name == "ids" or name.startswith("sum/") for name in answer.tensors)
        sizes = [{name: tuple(v.shape) for name, v in answer.tensors.items() if name != "ids"} for answer in found]
        assert all(one == sizes[0] for one in sizes)
        bits = np.concatenate(
            [
                value.numpy().ravel().view(np.uint8)
                for answer in found
                for name, value in answer.tensors.items()
                if name != "ids"
            ]
        )
        counts = np.bincount(bits, minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * np.sqrt(2 * 255)
    tables = [answer.tensors["sum/item_gmf"] for kind, answer in answers if kind == "train"]
    assert all((table != 0).double().mean() > 0.99 for table in tables), "untouched rows, too"


class Swapping(InProcess):
    """A server that changes what it passes on."""

    def exchange(self, kind: str, letters: Any, seconds: float) -> Any:
        return super().exchange(kind, {node: self.change(kind, node, one) for node, one in letters.items()}, seconds)

    change: Any


def swapped(folder: Path, change: Any, **options: Any) -> str:
    """How a run ends whose server changes letters."""
    courier = masked_nodes(folder, **{"n_nodes": 4, **options})
    courier.__class__ = Swapping
    courier.change = change  # type: ignore[attr-defined]
    with pytest.raises(IncompleteError) as caught:
        served(config(flower={"repeats": 0}), SPLIT, folder / "run", courier, simulated=False)
    return str(caught.value)


def test_a_server_that_swaps_keys_is_caught(tmp_path: Path) -> None:
    """It puts a key of its own in the place of a node's: in its card, or with a card signed by itself."""
    outside = identity(tmp_path / "evil", {"evil": write_key(tmp_path / "evil")})
    assert outside is not None

    def change(kind: str, node: int, letter: Letter, *, resign: bool) -> Letter:
        if kind != "share" or node == 100:
            return letter
        messages = dict(letter.about["messages"])
        name = min(messages, key=int)
        signed = msgspec.msgpack.decode(bytes.fromhex(messages[name]), type=Signed)
        card = msgspec.msgpack.decode(signed.card, type=Card)
        mine = msgspec.structs.replace(card, public=publish(Secret(b"evil" * 8)))
        forged = msgspec.structs.replace(signed, card=msgspec.msgpack.encode(mine))
        messages[name] = (sign(mine, outside) if resign else msgspec.msgpack.encode(forged)).hex()
        return replace(letter, about={**letter.about, "messages": messages})

    found = swapped(tmp_path / "forged", partial(change, resign=False))
    assert "somebody on the way changed its keys" in found
    found = swapped(tmp_path / "signed", partial(change, resign=True))
    assert "the server may have put in a key of its own" in found


def test_a_card_is_good_for_one_sum_and_each_node_takes_part_once(tmp_path: Path) -> None:
    def twice(kind: str, node: int, letter: Letter) -> Letter:
        if kind != "share":
            return letter
        messages = dict(letter.about["messages"])
        first, second = sorted(messages, key=int)[:2]
        return replace(letter, about={**letter.about, "messages": {**messages, second: messages[first]}})

    assert "for the participant it is said to be from" in swapped(tmp_path, twice)


def test_a_server_cannot_name_few_nodes_as_all_that_arrived(tmp_path: Path) -> None:
    def few(kind: str, node: int, letter: Letter) -> Letter:
        return (
            replace(letter, about={**letter.about, "arrived": letter.about["arrived"][:2]})
            if kind == "confirm"
            else letter
        )

    found = swapped(tmp_path / "few", few, rules=lambda number: {"min_users": 2})
    assert "at least 3 of 4 nodes should say the same of who is in it. 2 do" in found
    assert "should cover at least 30 users" in swapped(tmp_path / "users", few, rules=lambda number: {"min_sum": 30})


def test_a_server_cannot_tell_nodes_different_stories(tmp_path: Path) -> None:
    """Some are told that a node is lost whose upload arrived: then no sum is opened, and of nobody both secrets."""

    def stories(kind: str, node: int, letter: Letter) -> Letter:
        if kind != "confirm" or node < 103:
            return letter
        return replace(letter, about={**letter.about, "arrived": letter.about["arrived"][1:]})

    found = swapped(tmp_path, stories, n_nodes=6)
    assert "at least 4 of 6 nodes should say the same of who is in it. 3 do" in found


def test_a_server_that_withholds_envelopes_gets_no_upload(tmp_path: Path) -> None:
    """Without them a node would have no mask but its own, which others help to open."""

    def withhold(kind: str, node: int, letter: Letter, *, honest: bool) -> Letter:
        if kind != "train":
            return letter
        own = str(int(letter.tensors["ids"].min()))
        told = {"envelopes": {own: letter.about["envelopes"][own]}} | ({} if honest else {"sharers": [int(own)]})
        return replace(letter, about={**letter.about, **told})

    for honest in (True, False):
        found = swapped(tmp_path / str(honest), partial(withhold, honest=honest))
        assert "at least 3 of 4 participants should have sent shares" in found


def test_a_server_cannot_count_a_user_twice_nor_change_whom_it_asks(tmp_path: Path) -> None:
    def doubled(kind: str, node: int, letter: Letter) -> Letter:
        changed = kind == "prepare"
        return (
            replace(letter, tensors={**letter.tensors, "ids": letter.tensors["ids"].repeat(4)}) if changed else letter
        )

    def fewer(kind: str, node: int, letter: Letter) -> Letter:
        changed = kind == "train"
        return (
            replace(letter, tensors={**letter.tensors, "ids": letter.tensors["ids"].min()[None]}) if changed else letter
        )

    assert "should name every user once" in swapped(tmp_path / "a", doubled)
    assert "about the same users of a node" in swapped(tmp_path / "b", fewer)


def test_a_server_cannot_train_in_the_name_of_an_evaluation(tmp_path: Path) -> None:
    """Sums of metrics may cover fewer users, and are settled apart from those of training."""

    def renamed(kind: str, node: int, letter: Letter) -> Letter:
        return replace(letter, about={**letter.about, "purpose": "rank/test/candidates"})

    assert "A letter 'train' should be for the sum 'train'" in swapped(tmp_path, renamed)


def test_letters_out_of_turn_are_not_answered(tmp_path: Path) -> None:
    courier = masked_nodes(tmp_path, 4)
    served(config(), SPLIT, tmp_path / "run", courier, simulated=False)
    for kind, node, letter in [one for one in courier.sent if one[0] in ("share", "train", "unmask")][:12:4]:
        ((_, again),) = courier.exchange(kind, {node: letter}, 1.0)
        assert isinstance(again, Letter)
        assert "should follow" in again.about["error"], kind


def test_a_sum_is_opened_for_the_same_nodes_always(tmp_path: Path) -> None:
    """A server that has a round repeated without one node could subtract the two sums."""
    courier = masked_nodes(tmp_path, 4)
    served(config(), SPLIT, tmp_path / "run", courier, simulated=False)
    served(config(), SPLIT, tmp_path / "same", courier, simulated=False)
    courier.tamper = losing("train", {103})
    with pytest.raises(IncompleteError, match="was opened for other nodes"):
        served(config(flower={"repeats": 0}), SPLIT, tmp_path / "fewer", courier, simulated=False)


def test_phones_with_one_user_take_part(tmp_path: Path) -> None:
    small = random_split(n_users=12, n_items=130)
    result = served(config(), small, tmp_path / "run", masked_nodes(tmp_path, 12, split=small), simulated=False)
    assert result.history[0]["clients"] == 12
    with pytest.raises(IncompleteError, match=r"needs to know the run"):
        served(
            config(name="popularity"),
            small,
            tmp_path / "popularity",
            masked_nodes(tmp_path / "b", 12, split=small),
            simulated=False,
        )


def test_few_clients_few_nodes_and_nodes_without_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match=r"at least secagg\.min_clients = 10 clients"):
        served(
            config(method={"fraction": 0.2}),
            SPLIT,
            tmp_path / "clients",
            masked_nodes(tmp_path / "a", 4),
            simulated=False,
        )
    with pytest.raises(IncompleteError, match="at least 3 nodes"):
        served(config(flower={"nodes": 2}), SPLIT, tmp_path / "nodes", masked_nodes(tmp_path / "b", 2), simulated=False)
    courier = masked_nodes(tmp_path / "c", 4, rules=lambda number: {"peers": {}})
    with pytest.raises(IncompleteError, match=r"list the peers' public keys under \[peers\]"):
        served(config(), SPLIT, tmp_path / "keys", courier, simulated=False)
