"""What a curious server gets out of a node, with and without a policy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.builders import random_split
from tests.engine.flower.curious import Rankings, counts_of, f1, histories, letter, read_one_by_one
from tests.engine.flower.inprocess import InProcess, Tamper, config_of, served

from fedrecgel.draws import Draws
from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import PolicyError, RunError
from fedrecgel.methods import METHODS, spectral_start
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import Need, Problem
from fedrecgel.runs.flower import work_of
from fedrecgel.runs.policy import policy_for
from fedrecgel.tensors import Tensors

SPLIT = random_split(n_users=24, n_items=130)
USERS = list(range(24))
FEDRECGEL = json.dumps(config_of().to_dict())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (found,) = write_shards(SPLIT, tmp_path / "shards", 1)
    return found


def guarded(place: Path, **rules: object) -> Node:
    return Node(place, work_of, simulated=False, policy=Policy(**rules))  # type: ignore[arg-type]


def down() -> Tensors:
    """What FedRecGEL's clients download before round 0."""
    problem = Problem(SPLIT.n_users, SPLIT.n_items, torch.float64)
    return config_of().method.build().init_server(problem, Draws(0)).shared


def test_letters_for_one_user_each_give_away_every_history_without_a_policy_and_none_with(place: Path) -> None:
    assert read_one_by_one(Node(place, work_of), SPLIT, USERS) == len(USERS)
    assert read_one_by_one(guarded(place), SPLIT, USERS) == 0
    assert read_one_by_one(guarded(place, min_users=1), SPLIT, USERS) == len(USERS)  # whoever sets this wants it so


@pytest.mark.parametrize("ids", [torch.tensor([7] * 10), torch.arange(10.0), torch.arange(10)[:, None]])
def test_one_user_many_times_is_one_user(ids: torch.Tensor, place: Path) -> None:
    asked = letter(USERS)
    with pytest.raises(PolicyError, match="name every user once"):
        guarded(place).answer("train", replace(asked, tensors={"ids": ids}))


def test_sums_of_counts_cannot_be_subtracted_from_each_other(place: Path) -> None:
    """Two letters that differ in one user tell that user's history, unless all users take part in both."""
    truth = histories(SPLIT)
    free = Node(place, work_of)
    everybody, without = (counts_of(free, users, "run", 130) for users in (USERS, USERS[1:]))
    assert everybody is not None
    assert without is not None
    assert everybody - without <= truth[0]
    node = guarded(place)
    assert counts_of(node, USERS[1:], "run", 130) is None
    assert counts_of(node, USERS, "run", 130) == everybody


def test_a_round_is_answered_for_one_set_of_users(place: Path) -> None:
    node = guarded(place, min_users=5)
    first = letter(USERS[:20], FEDRECGEL, shared=down())
    told = node.answer("train", first)
    again = node.answer("train", first)  # after a kill of the server
    for name, value in told.tensors.items():
        assert torch.equal(again.tensors[name], value)
    with pytest.raises(PolicyError, match="answered for other users"):
        node.answer("train", letter(USERS[1:20], FEDRECGEL, shared=down()))
    node.answer("train", letter(USERS[1:20], FEDRECGEL, round=1, shared=down()))


def test_a_round_is_answered_with_one_model(place: Path) -> None:
    """A changed row reaches those alone who touch it: the two sums differ by their uploads."""
    node, model = guarded(place), down()
    node.answer("train", letter(USERS, FEDRECGEL, shared=model))
    changed = {**model, "item_gmf": model["item_gmf"].clone().index_fill_(0, torch.tensor([7]), 0.5)}
    with pytest.raises(PolicyError, match="other users or another model"):
        node.answer("train", letter(USERS, FEDRECGEL, shared=changed))


def test_negatives_that_stay_are_answered_for_all_users_or_none(place: Path) -> None:
    fixed = json.dumps(config_of(sampling={"redraw": False}).to_dict())
    node = guarded(place)
    node.answer("train", letter(USERS, fixed, shared=down()))
    with pytest.raises(PolicyError, match="subtracted from each other"):
        node.answer("train", letter(USERS[1:], fixed, round=1, shared=down()))


def test_a_method_that_needs_many_users_to_hide_each_gets_them(place: Path) -> None:
    spectra = json.dumps(config_of("spectra").to_dict())
    with pytest.raises(PolicyError, match="hides its users from 1,024 on"):
        guarded(place).answer("train", letter(USERS, spectra))


@pytest.mark.parametrize("hides", [False, True])
def test_a_spectral_start_needs_more_users_than_the_rounds_after_it(hides: bool) -> None:
    """Whatever a server says of its settings: what a node received decides."""
    method = FedRecGEL()
    first = method.init_server(Problem(1000, 30), Draws(0)).shared
    begins, later = method.hides_from(first), method.hides_from(spectral_start.left(first))
    with pytest.raises(PolicyError, match=r"from 1,000 on. It was asked for one of 999\. .* method\.init = 'normal'"):
        Policy().check_received(begins, 999, 400, 400, hides=hides)
    with pytest.raises(PolicyError, match="All 400 users of this node take part, or none; it was asked for 399"):
        Policy().check_received(begins, 1000, 399, 400, hides=hides)
    Policy().check_received(begins, 1000, 400, 400, hides=hides)
    Policy().check_received(later, 100, 30, 400, hides=hides)
    Policy(min_users=1).check_received(begins, 1, 1, 2, hides=hides)


def test_a_node_refuses_a_spectral_start_of_few(place: Path) -> None:
    config = config_of(method={"init": "spectral"})
    problem = Problem(SPLIT.n_users, SPLIT.n_items, torch.float64)
    first = config.method.build().init_server(problem, Draws(0)).shared
    asked = letter(USERS, json.dumps(config.to_dict()), shared=first)
    with pytest.raises(PolicyError, match="from 1,000 on"):
        guarded(place).answer("train", asked)
    guarded(place, min_users=1).answer("train", asked)


def test_a_killed_run_resumes_when_a_node_has_joined_since(tmp_path: Path) -> None:
    """The round that was begun asks the same clients again: nodes answer it for no others."""
    split = random_split(n_users=48, n_items=130)
    places, config = write_shards(split, tmp_path / "shards", 3), config_of(flower={"nodes": 2})
    n_trained = 0

    def kill(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        nonlocal n_trained
        n_trained += kind == "train"
        if n_trained == 4:  # in the second round both nodes have trained
            raise KeyboardInterrupt
        return [answer]

    def courier(n_nodes: int, tamper: Tamper) -> InProcess:
        made = {100 + number: lambda place: guarded(place, min_users=2) for number in range(n_nodes)}
        return InProcess(places[:n_nodes], tamper, faulty=made)

    with pytest.raises(KeyboardInterrupt):
        served(config, split, tmp_path / "run", courier(2, kill), simulated=False)
    result = served(
        config, split, tmp_path / "run", courier(3, lambda node, kind, answer: [answer]), resume=True, simulated=False
    )
    assert result.summary["answers"]["refused"] == {}
    assert [line["clients"] for line in result.history] == [16, 16, 24]


def test_a_sum_that_the_gate_left_to_few_users_does_not_leave(place: Path) -> None:
    """The gate drops uploads that are too long or not finite; what is left must still hide each user."""
    config = config_of(gate={"max_norm": 1e-12})  # the server's settings decide which uploads are too long
    node = guarded(place)
    with pytest.raises(PolicyError, match="After the gate some are missing"):
        node.answer("train", letter(USERS, json.dumps(config.to_dict()), shared=down()))
    assert not list((place / "state").glob("*/round-*"))


def test_evaluation_letters_alone_give_away_users_without_a_policy_and_hardly_anything_with(place: Path) -> None:
    truth = histories(SPLIT)
    free = Rankings(Node(place, work_of), USERS, SPLIT)
    held_out = free.held_out("catalogue")
    assert held_out == SPLIT.test.tolist()
    some = range(40)  # of the catalogue, so that the test is quick
    wanted = [items & set(some) for items in truth]
    assert f1(free.touched(some, held_out), wanted) > 0.9  # all but held-out items that were touched before
    limited = Rankings(guarded(place), USERS, SPLIT)
    found = limited.touched(some, held_out)  # even if it knows the held-out items
    assert limited.n_answered == 10
    assert set.union(*found) <= set(some[:10])


@pytest.mark.parametrize("against", ["candidates", "catalogue"])
def test_a_server_that_renames_its_run_gets_no_fresh_budget(place: Path, against: str) -> None:
    asking = Rankings(guarded(place, rankings=3, full_rankings=3), USERS, SPLIT)
    answers = [asking.ask(torch.tensor([item]), against) for item in range(5)]
    assert [answer is None for answer in answers] == [False, False, False, True, True]
    restarted = Rankings(guarded(place, rankings=3, full_rankings=3), USERS[:1], SPLIT)
    assert restarted.ask(torch.tensor([9]), against) is None  # what is spent is on disk


@pytest.mark.parametrize("name", METHODS)
def test_without_a_list_a_node_runs_methods_that_need_sums(name: str, place: Path) -> None:
    method = METHODS[name]()
    if method.server_needs <= Need.SUM:
        Policy().check_work(method, "plain", "")
    else:
        with pytest.raises(PolicyError, match="reads the uploads of single users"):
            guarded(place).answer("train", letter(USERS, json.dumps(config_of(name).to_dict())))
        Policy(methods=(name,)).check_work(method, "plain", "")


def test_a_list_of_methods_is_the_list(place: Path) -> None:
    with pytest.raises(PolicyError, match=r"runs fedmf \(policy.methods\). It was asked for 'popularity'"):
        guarded(place, methods=("fedmf",)).answer("train", letter(USERS))


def test_a_channel_that_is_not_listed_is_refused(place: Path) -> None:
    with pytest.raises(PolicyError, match=r"through secagg \(policy.channels\). It was asked for 'plain'"):
        guarded(place, channels=("secagg",)).answer("train", letter(USERS))


def test_a_policy_for_one_run_allows_that_run_and_no_other(tmp_path: Path) -> None:
    config = config_of(flower={"nodes": 2})
    places = write_shards(SPLIT, tmp_path / "shards", 2)
    rules = replace(policy_for(config), min_users=2)

    def courier() -> InProcess:
        return InProcess(
            places,
            faulty={number: lambda place: Node(place, work_of, simulated=False, policy=rules) for number in (100, 101)},
        )

    served(config, SPLIT, tmp_path / "run", courier(), simulated=False)
    other = config_of(flower={"nodes": 2}, method={"user_lr": 5.0})
    with pytest.raises(RunError, match="fingerprint"):
        served(other, SPLIT, tmp_path / "other", courier(), simulated=False)


def test_a_node_with_few_users_must_be_told_to_serve_them() -> None:
    Policy().check_host(10)
    with pytest.raises(PolicyError, match=r"Found 9\. Host more, list other nodes"):
        Policy().check_host(9)
