"""Silent nodes, nodes that lost their state, and folders that are asked for twice."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders import random_split
from tests.engine.flower.inprocess import InProcess, Tamper, config_of, same, served, shards_in, warnings_of

from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import RunError, RunFolderError
from fedrecgel.runs.config import Config
from fedrecgel.runs.result import Result

SPLIT = random_split(n_users=14, n_items=130)
BAD_NODE = 101
"""Hosts users 5 to 9."""


def small(**sections: Any) -> Config:
    """A run that costs little, with private vectors to lose."""
    method, evaluation = {"dim": 4, **sections.pop("method", {})}, {"full": False, **sections.pop("evaluation", {})}
    return config_of("fedmf", method=method, evaluation=evaluation, **sections)


def untouched(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
    return [answer]


def silent(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
    return [Lost("no answer within 600 s")] if node == BAD_NODE and kind != "hello" else [answer]


def failing(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
    return [Letter({"error": "no"})] if node == BAD_NODE and kind != "hello" else [answer]


def test_a_silent_node_costs_its_time_out_seldom_and_no_bit(tmp_path: Path) -> None:
    flower, evaluation = {"min_answers": 0.3}, {"every": 12}
    config = small(run={"rounds": 12}, method={"fraction": 1.0}, flower=flower, evaluation=evaluation)
    found: dict[str, tuple[Result, InProcess]] = {}
    for name, tamper in (("silent", silent), ("failing", failing)):
        courier = InProcess(write_shards(SPLIT, shards_in(tmp_path / name), 3), tamper)
        found[name] = served(config, SPLIT, tmp_path / name, courier), courier
    waited = Counter(node for kind, node, _ in found["silent"][1].sent if kind != "hello")
    assert waited[100] == 12 + 1  # rounds, and one evaluation for both the last round and the result
    assert waited[BAD_NODE] == 4, "letters 1, 3, 6 and 11"
    same(found["silent"][0].shared, found["failing"][0].shared)
    assert found["silent"][0].metrics == found["failing"][0].metrics
    lines = found["silent"][0].history
    assert all(line["refused"].total() == line["dropped"] for line in map(_counted, lines))
    assert sum((line["refused"] for line in map(_counted, lines)), Counter()).keys() == {"lost", "silent"}


def _counted(line: dict[str, object]) -> dict[str, Counter[str]]:
    return {**line, "refused": Counter(line["refused"])}  # type: ignore[dict-item, call-overload]


def test_a_node_that_is_needed_is_asked_however_silent_it_was(tmp_path: Path) -> None:
    """Clients left out count as missing: with every answer needed, nobody is left out."""
    courier = InProcess(write_shards(SPLIT, shards_in(tmp_path / "run"), 3), silent)
    with pytest.raises(RunError, match=r"Of 14 clients at least 14 should answer 'train'.*no answer within 600 s"):
        served(
            small(method={"fraction": 1.0}, flower={"min_answers": 1.0, "repeats": 3}),
            SPLIT,
            tmp_path / "run",
            courier,
        )
    assert [node for kind, node, _ in courier.sent if kind == "train"].count(BAD_NODE) == 4


def killed_in_round(number: int, before: Callable[[], object] = lambda: None) -> Tamper:
    def tamper(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        if kind == "train" and node == 100 and answer.about["round"] == number:  # the last to answer
            before()
            raise KeyboardInterrupt
        return [answer]

    return tamper


def test_a_folder_asked_for_twice_keeps_the_name_of_its_run(tmp_path: Path) -> None:
    """A second submission is refused and changes nothing: the first, killed later, resumes to the same bits."""
    config, folder = small(run={"rounds": 3}), tmp_path / "run"
    straight = served(config, SPLIT, tmp_path / "straight")
    courier = InProcess(write_shards(SPLIT, shards_in(folder), 3))

    def submit_again() -> None:
        for resume, reason in ((False, "holds this run up to round 2"), (True, "Another process is writing")):
            with pytest.raises(RunFolderError, match=reason):
                served(
                    config, SPLIT, folder, InProcess([shards_in(folder) / f"node-{n}" for n in range(3)]), resume=resume
                )

    courier.tamper = killed_in_round(2, submit_again)
    with pytest.raises(KeyboardInterrupt):
        served(config, SPLIT, folder, courier)
    courier.tamper = untouched
    resumed = served(config, SPLIT, folder, courier, resume=True)
    assert [line["loss"] for line in resumed.history] == [line["loss"] for line in straight.history]
    same(straight.shared, resumed.shared)
    same(straight.clients.pack(), resumed.clients.pack())


def test_a_folder_that_was_taken_while_this_run_got_ready_is_not_touched(tmp_path: Path) -> None:
    """Both find the folder empty; the one that is late finds it taken once it has the lock."""
    config, folder = small(run={"rounds": 1}), tmp_path / "run"
    late = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3))

    def be_overtaken(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        if kind == "hello" and not folder.exists():
            first = InProcess([tmp_path / "nodes" / f"node-{n}" for n in range(3)], killed_in_round(0))
            with pytest.raises(KeyboardInterrupt):
                served(config, SPLIT, folder, first, simulated=False)
        return [answer]

    late.tamper = be_overtaken
    with pytest.raises(RunFolderError, match="holds this run up to round 0"):
        served(config, SPLIT, folder, late, simulated=False)


def losing(folder: Path, **flower: object) -> Result:
    """A run of four rounds in which one node loses its disk after two and has only its data again."""
    config = small(run={"rounds": 4}, method={"fraction": 1.0}, flower=flower, evaluation={"every": 2})
    places = write_shards(SPLIT, folder.parent / f"nodes of {folder.name}", 3)

    def lose(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        if kind == "rank" and node == BAD_NODE and answer.about["round"] == 2:
            shutil.rmtree(places[1] / "state", ignore_errors=True)
        return [answer]

    return served(config, SPLIT, folder, InProcess(places, lose), simulated=False)


def test_a_node_that_lost_its_state_is_left_out_and_reported(tmp_path: Path) -> None:
    result = losing(tmp_path / "run")
    assert [line["refused"] for line in result.history] == [{}, {}, {"state lost": 5}, {"state lost": 5}]
    assert warnings_of(result) == [
        "key 101 has lost what its users learnt in this run: its answers are left out (flower.lost_state)."
    ]


def test_its_users_start_anew_where_the_operator_says_so(tmp_path: Path) -> None:
    result = losing(tmp_path / "run", lost_state="restart")
    assert [line["clients"] for line in result.history] == [14] * 4
    assert warnings_of(result) == ["key 101 has lost what its users learnt in this run: they start anew."]


def test_a_node_that_comes_late_has_lost_nothing(tmp_path: Path) -> None:
    config = small(run={"rounds": 4}, method={"fraction": 1.0}, flower={"nodes": 2})
    courier = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3))
    courier.offline = {BAD_NODE}

    def come(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        if kind == "train" and answer.about["round"] == 1:
            courier.offline = set()
        return [answer]

    courier.tamper = come
    result = served(config, SPLIT, tmp_path / "run", courier, simulated=False)
    assert [line["clients"] for line in result.history] == [9, 9, 9, 14]
    assert warnings_of(result) == []


def test_a_deployment_that_is_killed_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """The server goes back to an earlier round than nodes have seen: that is no lost state."""
    config = small(run={"rounds": 4}, checkpoint={"every": 2})
    courier = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3))
    straight = served(config, SPLIT, tmp_path / "straight", courier, simulated=False)
    courier.tamper = killed_in_round(3)
    with pytest.raises(KeyboardInterrupt):
        served(config, SPLIT, tmp_path / "killed", courier, simulated=False)
    courier.tamper = untouched
    resumed = served(config, SPLIT, tmp_path / "killed", courier, resume=True, simulated=False)
    same(straight.shared, resumed.shared)
    assert straight.metrics == resumed.metrics
    assert warnings_of(resumed) == []
