"""A whole run over nodes equals the same run in one process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import random_split
from tests.engine.flower.faults import Failing
from tests.engine.flower.inprocess import InProcess, config_of, same, served, shards_in

from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.shard import read_shard, write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import ConfigError, RunError
from fedrecgel.methods import METHODS
from fedrecgel.methods.messages import Problem
from fedrecgel.runs.config import Config
from fedrecgel.runs.flower import check_start, work_of
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.hosted import recommend_hosted
from fedrecgel.runs.reference import WITHHELD
from fedrecgel.runs.result import Result
from fedrecgel.runs.summary import BARE
from fedrecgel.runs.train import train_config

SPLIT = random_split(n_users=14, n_items=130)


def in_one_process(config: Config) -> Result:
    return train_config(replace(config, run=replace(config.run, engine="local")), SPLIT)


@pytest.mark.parametrize("method", METHODS)
def test_nodes_and_one_process_agree(method: str, tmp_path: Path) -> None:
    # CoFedRec cuts its groups where rounding may move the cut, and in Spectra items that the same users have tie but
    # for rounding: one node adds up in the order of one process.
    nodes = 1 if method in ("cofedrec", "spectra") else 3
    config = config_of(method, flower={"nodes": nodes}, evaluation={"reference": "on"})
    local, remote = in_one_process(config), served(config, SPLIT, tmp_path / "run")
    same(local.shared, remote.shared, 1e-9)
    same(local.clients.of(slice(None)).tensors, remote.clients.of(slice(None)).tensors, 1e-9)
    for name, table in local.clients.tables.items():
        torch.testing.assert_close(table.dense(), remote.clients.tables[name].dense(), rtol=1e-9, atol=1e-9)
    assert local.metrics == remote.metrics
    assert local.metrics_full == remote.metrics_full
    assert local.reference == remote.reference
    assert local.user_ids == remote.user_ids
    assert local.recommend("u3", 4)[0].item == remote.recommend("u3", 4)[0].item
    assert [line["clients"] for line in local.history] == [line["clients"] for line in remote.history]


@pytest.mark.parametrize(
    "settings",
    [
        {"method": {"weighting": "examples"}},
        {"method": {"variant": "paper"}},
        {"evaluation": {"selection": "validation", "every": 1}},
        {"gate": {"row_limit": 0.01}, "evaluation": {"reference": "on"}},
        {"flower": {"nodes": 1}},
        {"flower": {"nodes": 14}},
    ],
    ids=str,
)
def test_every_setting_agrees_too(settings: dict[str, Any], tmp_path: Path) -> None:
    config = config_of("fedrecgel", **settings)
    split = random_split(n_users=14, n_items=130, validation=config.split.validation)
    local = train_config(replace(config, run=replace(config.run, engine="local")), split)
    remote = served(config, split, tmp_path / "run")
    same(local.shared, remote.shared, 1e-9)
    assert local.metrics == remote.metrics
    assert local.reference == remote.reference or not remote.reference
    assert local.summary["protocol"] == remote.summary["protocol"]


def test_tables_that_nobody_kept_are_refused_before_nodes_are_asked() -> None:
    with pytest.raises(ConfigError, match=r"method.init = 'kept' keeps the tables of an earlier run"):
        check_start(config_of(method={"init": "kept"}), SPLIT)


def test_the_server_of_a_deployment_gets_no_data_and_no_private_state(tmp_path: Path) -> None:
    config = config_of()
    courier = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3))
    answers: list[Letter] = []

    def listen(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        answers.append(answer)
        return [answer]

    courier.tamper = listen
    result = served(config, SPLIT, tmp_path / "run", courier, simulated=False)
    assert result.clients.tensors.keys() == {"rounds"}
    assert len(result.train.items) == 0
    assert result.user_ids == list(range(14))
    assert all(answer.tensors.keys().isdisjoint({"user", "at", "sum/user"}) for answer in answers)


DECLARED_AS = {"users": "clients", "ids": "clients", "above": "rank", "tied": "rank"}
"""What a run says leaves a node, for what letters call otherwise."""
ABOUT_NOBODY = {"round", "facts"}
"""What the server knows already, or may know: nothing about a single user."""


def names_in(answer: Letter) -> set[str]:
    """What a node tells, under the names that a summary declares."""
    told = {DECLARED_AS.get(name, name).removeprefix("sum/").removeprefix("each/") for name in answer.tensors}
    return told | (answer.about.keys() - ABOUT_NOBODY)


@pytest.mark.parametrize(
    ("method", "reference"), [*((name, "auto") for name in (*METHODS, "weighted")), ("fedrecgel", "on")]
)
def test_all_that_leaves_a_node_is_declared(method: str, reference: str, tmp_path: Path) -> None:
    """Every letter of a run: the first one, training, evaluation, and those of the popularity row if there is one."""
    told: set[str] = set()

    def listen(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        told.update(names_in(answer))
        return [answer]

    weighted = {"weighting": "examples"} if method == "weighted" else {}
    name = "fedrecgel" if method == "weighted" else method
    rounds = METHODS[name]().rounds or 1
    config = config_of(name, run={"rounds": rounds}, method=weighted, evaluation={"reference": reference})
    courier = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3), listen)
    result = served(config, SPLIT, tmp_path / "run", courier, simulated=False)
    assert told == set(result.summary["privacy"]["leaves_device"])
    method_here = METHODS[name]().settled(Problem(SPLIT.n_users, SPLIT.n_items))
    assert ("counts" in told) == (reference == "on" or "counts" in method_here.leaves_device())
    assert bool(result.reference) == (reference == "on")


def test_a_node_with_one_user_keeps_its_history_unless_the_popularity_row_is_asked_for(tmp_path: Path) -> None:
    sent: list[torch.Tensor] = []

    def listen(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        sent.extend(value for name, value in answer.tensors.items() if name == "sum/counts")
        return [answer]

    split = random_split(n_users=4, n_items=130)

    def run(reference: str) -> Result:
        config = config_of(run={"rounds": 1}, flower={"nodes": 4}, evaluation={"reference": reference})
        courier = InProcess(write_shards(split, tmp_path / f"{reference}-nodes", 4), listen)
        return served(config, split, tmp_path / reference, courier, simulated=False)

    withheld = run("auto").summary
    assert not sent
    assert withheld["reference"] == withheld["reference_full"] == {}
    assert withheld["warnings"] == [WITHHELD, BARE]
    asked_for = run("on").summary
    histories = {tuple(split.train.items[slice(*split.train.ptr[user : user + 2])].tolist()) for user in range(4)}
    assert {tuple(counts.flatten().nonzero()[:, 0].tolist()) for counts in sent} == histories
    assert asked_for["reference"]["popularity"].keys() == asked_for["metrics"].keys()
    assert "counts" in asked_for["privacy"]["leaves_device"]
    assert WITHHELD not in asked_for["warnings"]
    assert asked_for["metrics"] == withheld["metrics"]


def test_tables_are_sent_whole_so_that_rows_do_not_tell_who_touched_what(tmp_path: Path) -> None:
    seen: list[torch.Size] = []

    def listen(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        seen.extend(value.shape for name, value in answer.tensors.items() if name == "sum/item_gmf")
        return [answer]

    courier = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3), listen)
    served(config_of(), SPLIT, tmp_path / "run", courier, simulated=False)
    assert set(seen) == {(130, 4)}


def test_bytes_are_those_of_the_letters(tmp_path: Path) -> None:
    courier = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3))
    result = served(config_of(), SPLIT, tmp_path / "run", courier, simulated=False)
    letters = [letter for kind, _, letter in courier.sent if kind == "train"]
    assert result.summary["bytes"]["down"] == sum(letter.n_bytes for letter in letters)
    assert result.summary["bytes"]["up"] > 0


@pytest.mark.parametrize("stop_after", [0, 1, 2])
@pytest.mark.parametrize("method", ["fedrecgel", "pfedrec"])
def test_a_server_killed_in_a_round_resumes_to_the_same_bits(method: str, stop_after: int, tmp_path: Path) -> None:
    config = config_of(method, method={"fraction": 1.0})
    straight = served(config, SPLIT, tmp_path / "straight")
    folder = tmp_path / "killed"
    courier = InProcess(write_shards(SPLIT, shards_in(folder), 3))

    def kill(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        if kind == "train" and answer.about["round"] == stop_after and node == 101:
            raise KeyboardInterrupt  # other nodes have trained already, and kept what they learnt
        return [answer]

    courier.tamper = kill
    with pytest.raises(KeyboardInterrupt):
        served(config, SPLIT, folder, courier)
    assert not RunFolder(folder).summary.exists()
    courier.tamper = lambda node, kind, answer: [answer]
    resumed = served(config, SPLIT, folder, courier, resume=True)
    same(straight.shared, resumed.shared)
    same(straight.clients.pack(), resumed.clients.pack())
    assert straight.metrics == resumed.metrics


def test_two_runs_with_the_same_settings_do_not_share_private_state(tmp_path: Path) -> None:
    config, courier = config_of(), InProcess(write_shards(SPLIT, tmp_path / "nodes", 3))
    first = served(config, SPLIT, tmp_path / "first", courier, simulated=False)
    longer = replace(config, run=replace(config.run, rounds=5))
    served(config, SPLIT, tmp_path / "second", courier, simulated=False)
    extended = served(longer, SPLIT, tmp_path / "first", courier, resume=True, simulated=False)
    straight = served(longer, SPLIT, tmp_path / "straight", courier, simulated=False)
    same(extended.shared, straight.shared)
    assert first.summary["rounds"] == 3


def test_too_few_nodes_are_a_failure_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"needs flower.nodes = 3 nodes. Found 2"):
        served(config_of(), SPLIT, tmp_path / "run", InProcess(write_shards(SPLIT, tmp_path / "nodes", 2)))


def test_a_node_of_other_data_is_turned_away(tmp_path: Path) -> None:
    places = write_shards(SPLIT, tmp_path / "nodes", 2)
    places.append(write_shards(random_split(n_users=14, n_items=130, seed=5), tmp_path / "other", 3)[2])
    with pytest.raises(RunError, match=r"Found 2 after .* 1 host users of other data"):
        served(config_of(), SPLIT, tmp_path / "run", InProcess(places))


def one_fails(folder: Path) -> InProcess:
    """The last of three nodes never trains."""
    return InProcess(write_shards(SPLIT, shards_in(folder), 3), faulty={102: Failing})


def test_a_node_that_always_fails_ends_the_run_with_its_own_words(tmp_path: Path) -> None:
    config = config_of(flower={"min_answers": 1.0, "repeats": 1})
    with pytest.raises(RunError, match="This node fails on purpose"):
        served(config, SPLIT, tmp_path / "run", one_fails(tmp_path / "run"))


def test_a_run_continues_without_a_node_that_always_fails(tmp_path: Path) -> None:
    result = served(config_of(), SPLIT, tmp_path / "run", one_fails(tmp_path / "run"))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["clients"] for line in lines] == [line["clients"] for line in result.history]
    assert all(line["refused"]["error"] == line["dropped"] for line in result.history if line["dropped"])
    assert sum(line["dropped"] for line in result.history) > 0


def test_a_node_that_lies_in_every_round_is_as_good_as_absent(tmp_path: Path) -> None:
    """One of three sends -10,000 times its sum: the run is that without it, to the bit."""

    def lie(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        if kind != "train" or node != 102:
            return [answer]
        sums = {name: -1e4 * value for name, value in answer.tensors.items() if name.startswith("sum/")}
        return [replace(answer, tensors={**answer.tensors, **sums})]

    liar = InProcess(write_shards(SPLIT, shards_in(tmp_path / "lied"), 3), lie)
    lied = served(config_of(), SPLIT, tmp_path / "lied", liar)
    absent = served(config_of(), SPLIT, tmp_path / "absent", one_fails(tmp_path / "absent"))
    same(lied.shared, absent.shared)
    answers = lied.summary["answers"]
    assert answers["refused"] == {"norm": answers["missing"]}
    assert answers["missing"] > 0


def test_a_real_node_imports_no_file_that_a_server_names(tmp_path: Path) -> None:
    """In a simulation the user wrote the file; a node elsewhere runs what is installed on it."""
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit('this file must not be run')\n")
    (place,) = write_shards(SPLIT, tmp_path / "shards", 1)
    node = Node(place, work_of, simulated=False)
    work = json.dumps({"method": {"name": f"{file}:Mine"}})
    with pytest.raises(ConfigError, match=r"A node runs methods that are installed on it. Found 'Mine' in a file"):
        node.answer("train", Letter({"run": "a-run", "round": 0, "work": work}, {"ids": torch.tensor([0])}))


@pytest.mark.parametrize("method", ["fedrecgel", "pfedrec", "ease"])
def test_a_deployment_recommends_to_histories_and_on_its_nodes(method: str, tmp_path: Path) -> None:
    config = config_of(method)
    local = in_one_process(config)
    courier = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3))
    result = served(config, SPLIT, tmp_path / "run", courier, simulated=False)
    with pytest.raises(ConfigError, match="The users of this run are on their nodes"):
        result.recommend("3")
    found = result.recommend(history=[103, 107, 150], k=5)
    assert [best.item for best in found] == [best.item for best in local.recommend(history=[103, 107, 150], k=5)]
    for place in sorted((tmp_path / "nodes").iterdir()):
        hosted = dict(recommend_hosted(tmp_path / "run", read_shard(place), None, 5))
        for user, best in hosted.items():
            assert [entry.item for entry in best] == [entry.item for entry in local.recommend(user, 5)]
    with pytest.raises(ConfigError, match="Unknown user 'u99' on this node"):
        list(recommend_hosted(tmp_path / "run", read_shard(place), "u99", 5))
