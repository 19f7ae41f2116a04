"""A user belongs to the key that registered it first; a node that claims others' users gets none of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import random_split
from tests.engine.flower.inprocess import InProcess, config_of, served, warnings_of

from fedrecgel.engine.flower.bindings import Bindings, read_hosts
from fedrecgel.engine.flower.roster import Roster
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import RunError
from fedrecgel.runs.config import Config

SPLIT = random_split(n_users=14, n_items=130)
LIAR = 102
"""Hosts users 10 to 13."""
LEFT_OUT = "Key 102 is left out, because 10 of the 14 users it claims are bound to other keys."


class Greedy(InProcess):
    """One node claims everybody, fails to train anybody, and reports perfect ranks for whoever it is asked for."""

    def __init__(self, places: list[Path]) -> None:
        super().__init__(places)
        self.asked: set[int] = set()

    def exchange(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        honest = {node: letter for node, letter in letters.items() if node != LIAR}
        yield from super().exchange(kind, honest, seconds)
        for node in letters.keys() - honest.keys():
            ((_, answer),) = super().exchange(kind, {node: letters[node]}, seconds)
            if kind == "hello":
                assert isinstance(answer, Letter)
                yield node, replace(answer, tensors={"users": torch.arange(14)})
                continue
            ids = letters[node].tensors["ids"]
            self.asked |= set(ids.tolist())
            best = {"ids": ids, "above": torch.zeros_like(ids), "tied": torch.zeros_like(ids)}
            yield (
                node,
                Letter({"round": letters[node].about["round"]}, best) if kind == "rank" else Letter({"error": ""}),
            )


def gathered(courier: InProcess, bindings: Bindings | None = None, **flower: Any) -> Roster:
    roster = Roster(courier, config_of(flower=flower).flower, bindings)
    roster.gather()
    return roster


def hosting(roster: Roster) -> dict[int, list[int]]:
    return {node: users.tolist() for node, users in sorted(roster.hosting(torch.arange(14)).items())}


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    return write_shards(SPLIT, tmp_path, 3)


def test_a_node_that_comes_later_gets_nobody_who_is_bound(places: list[Path]) -> None:
    courier = Greedy(places)
    courier.offline = {LIAR}
    roster = gathered(courier, nodes=2)
    courier.offline = set()
    assert hosting(roster) == {100: [0, 1, 2, 3, 4], 101: [5, 6, 7, 8, 9]}
    assert roster.bindings.warnings == [LEFT_OUT]
    assert roster.population().tolist() == list(range(10))


def test_nobody_decides_between_nodes_that_come_together(places: list[Path]) -> None:
    twin = InProcess([*places, places[1]])
    roster = gathered(twin, nodes=2)
    assert hosting(roster) == {100: [0, 1, 2, 3, 4], 102: [10, 11, 12, 13]}
    claimed = (
        "because 5 of the 5 users it claims are claimed by another key as well; name the right one in flower.hosts"
    )
    assert roster.bindings.warnings == [f"Key {node} is left out, {claimed}." for node in (103, 101)]
    with pytest.raises(
        RunError, match=r"needs flower.nodes = 3 nodes. Found 0 .* key 102 is left out, because 10 of the 14"
    ):
        gathered(Greedy(places), nodes=3)


def test_the_operators_word_decides(places: list[Path]) -> None:
    bindings = Bindings()
    bindings.obey(read_hosts('{"hosts": {"key 100": [[0, 4]], "key 101": [[5, 9]], "key 102": [[10, 13]]}}'))
    roster = gathered(Greedy(places), bindings, nodes=2)
    assert hosting(roster) == {100: [0, 1, 2, 3, 4], 101: [5, 6, 7, 8, 9]}
    assert roster.bindings.warnings == [
        "Key 102 is left out, because 10 of the 14 users it claims are not its own by flower.hosts."
    ]


def test_the_same_key_takes_its_users_over_under_another_number(places: list[Path]) -> None:
    courier = InProcess(places)
    roster = gathered(courier)
    courier.restart(101, 55)
    assert hosting(roster) == {55: [5, 6, 7, 8, 9], 100: [0, 1, 2, 3, 4], 102: [10, 11, 12, 13]}
    courier.restart(55, 56)
    courier.keys[56] = "another key"
    assert hosting(roster) == {100: [0, 1, 2, 3, 4], 102: [10, 11, 12, 13]}
    assert roster.population().tolist() == list(range(14)), "its users are missing, not gone"
    assert roster.bindings.warnings == [
        "Another key is left out, because 5 of the 5 users it claims are bound to other keys."
    ]


def test_a_node_that_does_not_introduce_itself_is_waited_for_seldom(places: list[Path]) -> None:
    courier = InProcess(places)
    courier.tamper = lambda node, kind, answer: [Lost("no answer within 60 s")] if node == 101 else [answer]
    roster = gathered(courier, nodes=2)
    for _ in range(20):
        roster.refresh()
    assert [node for kind, node, _ in courier.sent if kind == "hello"].count(101) == 5
    courier.tamper = lambda node, kind, answer: [answer]
    for _ in range(20):
        roster.refresh()
    assert sorted(hosting(roster)) == [100, 101, 102]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: replace(a, about={}),
        lambda a: replace(a, about={"facts": {**a.about["facts"], "n_users": True}}),
        lambda a: replace(a, about={"facts": {**a.about["facts"], "settings": {"candidates": -1}}}),
        lambda a: replace(a, about={"facts": {"n_users": 14}}),
        lambda a: replace(a, tensors={"users": a.tensors["users"].double()}),
        lambda a: replace(a, tensors={"users": a.tensors["users"] + 10}),
        lambda a: replace(a, tensors={"users": a.tensors["users"][[0, 0]]}),
        lambda a: replace(a, tensors={}),
        lambda a: Letter({"error": ["no text"]}),
    ],
)
def test_an_introduction_that_says_nothing_sensible_is_left_out(spoil: Any, places: list[Path]) -> None:
    courier = InProcess(places, lambda node, kind, answer: [spoil(answer)] if node == 100 else [answer])
    assert sorted(hosting(gathered(courier, nodes=2))) == [101, 102]


def forged(config: Config, folder: Path, courier: Greedy, *, resume: bool = False) -> tuple[float, list[str]]:
    result = served(config, SPLIT, folder, courier, resume=resume, simulated=False)
    return result.metrics["HR@10"], warnings_of(result)


def test_a_node_that_claims_everybody_forges_no_rank_but_its_own(places: list[Path], tmp_path: Path) -> None:
    """Users 10 to 13 are the liar's own: what it says of them nobody can check. Of the others it gets none."""
    config = config_of(run={"rounds": 1}, flower={"nodes": 2, "min_answers": 0.1, "repeats": 0})
    courier = Greedy(places)
    courier.offline = {LIAR}
    clean, none = forged(config, tmp_path / "clean", courier)
    assert none == []

    def let_it_come(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        courier.offline = set()
        return [answer]

    courier.tamper = let_it_come
    found, warnings = forged(config, tmp_path / "run", courier)
    assert (found, courier.asked) == (clean, set())
    assert warnings == [LEFT_OUT]
    remembered = json.loads((tmp_path / "run" / "checkpoint" / "hosts.json").read_text())
    assert remembered["hosts"] == {"key 101": [[5, 9]], "key 100": [[0, 4]]}
    assert remembered["warnings"] == warnings
    longer = replace(config, run=replace(config.run, rounds=2))
    forged(longer, tmp_path / "run", courier, resume=True)  # now it is there from the start
    assert courier.asked == set()
