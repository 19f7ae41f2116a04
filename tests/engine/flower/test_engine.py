"""The server's side: which answers count, and how long it waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import problem_of, random_split
from tests.engine.flower.faults import Absent, MakeNode
from tests.engine.flower.inprocess import InProcess, Tamper, config_of

from fedrecgel.channels.base import Plain
from fedrecgel.draws import Draws
from fedrecgel.engine.base import Trained
from fedrecgel.engine.flower.asking import RemoteRun
from fedrecgel.engine.flower.engine import FlowerEngine
from fedrecgel.engine.flower.roster import Roster
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.engine.gate import GateSettings
from fedrecgel.errors import RunError
from fedrecgel.methods.messages import Server
from fedrecgel.runs.config import Config

SPLIT = random_split(n_users=14, n_items=130)
BAD_NODE = 101
EVERYONE = torch.arange(14)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_shards(SPLIT, tmp_path_factory.mktemp("shards"), 3)


def engine_of(
    places: list[Path],
    config: Config | None = None,
    tamper: Tamper | None = None,
    faulty: Mapping[int, MakeNode] | None = None,
) -> FlowerEngine:
    config = config or config_of(flower={"min_answers": 0.3, "repeats": 0})
    courier = InProcess(places, faulty=faulty)
    if tamper is not None:
        courier.tamper = tamper
    roster = Roster(courier, config.flower)
    roster.gather()
    run = RemoteRun("run", json.dumps(config.to_dict()))
    method = config.method.build()
    return FlowerEngine(method, Plain(), problem_of(SPLIT), roster, courier, run, config.flower, config.gate)


def server_of(engine: FlowerEngine) -> Server:
    return engine.method.init_server(problem_of(SPLIT), Draws(0))


def trained(engine: FlowerEngine) -> Trained:
    return engine.train(server_of(engine), EVERYONE, 1)


def changed(answer: Letter, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Letter:
    return replace(answer, tensors={**answer.tensors, name: change(answer.tensors[name])})


def without(answer: Letter, name: str) -> Letter:
    return replace(answer, tensors={key: value for key, value in answer.tensors.items() if key != name})


def about(answer: Letter, **facts: object) -> Letter:
    return replace(answer, about={**answer.about, **facts})


def _scaled(answer: Letter, factor: float) -> Letter:
    """A lie that no check of a single answer can tell from the truth."""
    sums = {name: value * factor for name, value in answer.tensors.items() if name.startswith("sum/")}
    return replace(answer, tensors={**answer.tensors, **sums})


def _spoil(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: tensor.index_fill(0, torch.tensor([0]), value)


class _Awkward(torch.Tensor):
    """Raises what no list of exceptions foresees."""

    def dim(self) -> int:
        raise ArithmeticError


ITEMS = "sum/item_gmf"
BAD_ANSWERS: dict[str, tuple[str, Callable[[Letter], list[Letter | Lost]]]] = {
    "NaN": ("not finite", lambda a: [changed(a, ITEMS, _spoil(torch.nan))]),
    "Inf": ("not finite", lambda a: [changed(a, ITEMS, _spoil(torch.inf))]),
    "huge": ("norm", lambda a: [changed(a, ITEMS, _spoil(1e30))]),
    "above the bound": ("norm", lambda a: [changed(a, ITEMS, _spoil(100 * GateSettings().max_norm))]),
    "its sum times -10,000": ("norm", lambda a: [_scaled(a, -1e4)]),
    "its sum times 1,000": ("norm", lambda a: [_scaled(a, 1e3)]),
    "broadcastable shape": ("shape", lambda a: [changed(a, ITEMS, lambda t: t[:1])]),
    "a row too few": ("shape", lambda a: [changed(a, ITEMS, lambda t: t[:-1])]),
    "another type": ("dtype", lambda a: [changed(a, ITEMS, lambda t: t.float())]),
    "a missing key": ("names", lambda a: [without(a, ITEMS)]),
    "an extra key": ("names", lambda a: [replace(a, tensors={**a.tensors, "sum/more": torch.zeros(1)})]),
    "a key elsewhere": ("names", lambda a: [replace(a, tensors={**a.tensors, "user": torch.zeros(1)})]),
    "a claimed weight": ("names", lambda a: [replace(a, tensors={**a.tensors, "weight": torch.full((5,), 1e12)})]),
    "another round": ("late", lambda a: [about(a, round=0)]),
    "no round": ("late", lambda a: [about(a, round=None)]),
    "other clients": ("clients", lambda a: [changed(a, "ids", lambda t: t + 1)]),
    "a client twice": ("twice", lambda a: [changed(a, "ids", lambda t: t[:1].expand(len(t)))]),
    "no clients": ("unreadable", lambda a: [without(a, "ids")]),
    "a loss of NaN": ("loss", lambda a: [about(a, loss=float("nan"))]),
    "a loss in words": ("loss", lambda a: [about(a, loss="low")]),
    "a loss that single precision cannot hold": ("loss", lambda a: [about(a, loss=1e300)]),
    "endless refusals": ("refusals", lambda a: [about(a, refused={"norm": float("inf")})]),
    "negative refusals": ("refusals", lambda a: [about(a, refused={"norm": -3})]),
    "more refusals than clients": ("refusals", lambda a: [about(a, refused={"norm": 6})]),
    "invented reasons": ("refusals", lambda a: [about(a, refused={f"reason {n}": 1 for n in range(1000)})]),
    "refusals in words": ("refusals", lambda a: [about(a, refused="many")]),
    "a depth no reader expects": ("unreadable", lambda a: [changed(a, "ids", lambda t: _Awkward())]),
    "nothing at all": ("late", lambda a: [Letter({})]),
    "an error": ("error", lambda a: [Letter({"error": "out of memory"})]),
    "no answer": ("lost", lambda a: [Lost("no answer within 5 s")]),
}


def one_bad_node(spoil: Callable[[Letter], list[Letter | Lost]]) -> Tamper:
    return lambda node, kind, answer: spoil(answer) if node == BAD_NODE and kind == "train" else [answer]


@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_a_bad_answer_is_left_out_counted_and_changes_no_bit(kind: str, places: list[Path]) -> None:
    reason, spoil = BAD_ANSWERS[kind]
    found = trained(engine_of(places, tamper=one_bad_node(spoil)))
    leaving_out = trained(engine_of(places, tamper=one_bad_node(lambda answer: [])))
    assert found.refused == {reason: 5}
    assert found.n_answers == leaving_out.n_answers == 9
    assert found.loss == leaving_out.loss
    for name, value in leaving_out.inbox.mean().items():
        assert torch.equal(found.inbox.mean()[name], value)


def test_an_answer_that_comes_twice_counts_once(places: list[Path]) -> None:
    twice = trained(engine_of(places, tamper=one_bad_node(lambda answer: [answer, answer])))
    once = trained(engine_of(places))
    assert twice.refused == {"twice": 5}
    assert all(torch.equal(twice.inbox.mean()[name], value) for name, value in once.inbox.mean().items())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["round", "loss", "refused", "error", "other"]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4),
)
def test_no_fact_a_node_can_write_ends_a_run(places: list[Path], key: str, value: object) -> None:
    found = trained(engine_of(places, tamper=one_bad_node(lambda answer: [about(answer, **{key: value})])))
    assert found.n_answers in (9, 14)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in found.inbox.mean().values())


def _with_weight(weight: float, answer: Letter) -> list[Letter | Lost]:
    return [changed(answer, "weight", _spoil(weight))]


def test_weights_are_claimed_only_where_the_method_says_so_and_within_bounds(places: list[Path]) -> None:
    config = config_of("fedncf", method={"weighting": "examples"}, flower={"min_answers": 0.3, "repeats": 0})
    honest = trained(engine_of(places, config))
    assert honest.n_answers == 14
    for weight in (-89.0, 0.0, 1e12, float("nan")):
        bad = one_bad_node(partial(_with_weight, weight))
        assert trained(engine_of(places, config, bad)).n_answers == 9


def test_a_weight_within_the_bound_but_far_above_those_of_others_is_refused(places: list[Path]) -> None:
    config = config_of("fedncf", method={"weighting": "examples"}, flower={"min_answers": 0.3, "repeats": 0})
    heavy = one_bad_node(lambda answer: [changed(answer, "weight", lambda t: t * 1e4)])
    found, usual = (trained(engine_of(places, config, tamper)) for tamper in (heavy, None))
    assert found.refused == {"norm": 5}
    assert usual.refused == {}


def test_of_uploads_that_arrive_one_by_one_only_the_bad_one_is_left_out(places: list[Path]) -> None:
    config = config_of("gpfedrec", method={"dim": 4, "layers": [4]}, flower={"min_answers": 0.3, "repeats": 0})

    def lie(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor[:2], -1e4 * tensor[2:3], tensor[3:]])

    def leave(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor[:2], tensor[3:]])

    lying = trained(engine_of(places, config, one_bad_node(lambda answer: [changed(answer, "each/items", lie)])))
    absent = one_bad_node(
        lambda answer: [replace(answer, tensors={name: leave(value) for name, value in answer.tensors.items()})]
    )
    leaving_out = trained(engine_of(places, config, absent))
    assert lying.refused == {"norm": 1}
    assert leaving_out.refused == {}
    assert lying.n_answers == leaving_out.n_answers == 13
    for name, value in leaving_out.inbox.mean().items():
        assert torch.equal(lying.inbox.mean()[name], value)


def test_two_answers_cannot_be_compared(places: list[Path]) -> None:
    engine = engine_of(places, tamper=one_bad_node(lambda answer: [_scaled(answer, 1e3)]))
    engine._asking.courier.offline = {102}  # type: ignore[attr-defined]
    assert trained(engine).refused == {}


def test_an_answer_far_off_is_asked_for_again_where_it_is_needed(places: list[Path]) -> None:
    n_lies = 0

    def lie_once(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        nonlocal n_lies
        if kind == "train" and node == BAD_NODE and n_lies < 1:
            n_lies += 1
            return [_scaled(answer, -1e4)]
        return [answer]

    config = config_of(flower={"min_answers": 1.0, "repeats": 1})
    again, usual = trained(engine_of(places, config, lie_once)), trained(engine_of(places))
    assert again.n_answers == 14
    assert again.refused == {"norm": 5}
    assert all(torch.equal(again.inbox.mean()[name], value) for name, value in usual.inbox.mean().items())


def test_too_many_answers_far_off_end_the_run_with_a_reason(places: list[Path]) -> None:
    config = config_of(flower={"min_answers": 1.0, "repeats": 1})
    engine = engine_of(places, config, one_bad_node(lambda answer: [_scaled(answer, -1e4)]))
    with pytest.raises(RunError, match=r"at least 14 should answer 'train'.*Found 9.*node 101: refused \(norm\)"):
        trained(engine)


def test_too_few_answers_are_asked_for_again(places: list[Path]) -> None:
    n_lost = 0

    def lose_once(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        nonlocal n_lost
        if kind == "train" and node == BAD_NODE and n_lost < 1:
            n_lost += 1
            return [Lost("no answer within 5 s")]
        return [answer]

    engine = engine_of(places, config_of(flower={"min_answers": 1.0, "repeats": 1}), lose_once)
    again, usual = trained(engine), trained(engine_of(places))
    assert again.n_answers == 14
    assert all(torch.equal(again.inbox.mean()[name], value) for name, value in usual.inbox.mean().items())
    assert again.refused == {"lost": 5}


def test_perfedrecs_graph_is_right_after_lost_answers(tmp_path: Path) -> None:
    """A device does not know that its answer was lost; the next one must still put in what the server lacks."""

    def lose_first(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        lost = kind == "train" and node == BAD_NODE and answer.about["round"] == 0
        return [Lost("no answer within 5 s")] if lost else [answer]

    config = config_of("perfedrec", method={"dim": 4}, flower={"min_answers": 0.3, "repeats": 0})
    engine = engine_of(write_shards(SPLIT, tmp_path, 3), config, lose_first)
    server = server_of(engine)
    for number, answers in enumerate((9, 9, 14, 14)):  # after a silence it is left out of one letter
        found = engine.train(server, EVERYONE, number)
        assert found.n_answers == answers
        server = engine.method.server_update(server, found.inbox, number, Draws(0))
    owner, at = SPLIT.train.flat(EVERYONE.numpy())
    own = torch.zeros(14, SPLIT.n_items, dtype=torch.float64)
    own[owner, SPLIT.train.items[at]] = 1
    assert torch.equal(server.shared["degree"][:, 0], own.sum(0))
    assert torch.allclose(server.shared["neighbours"], own.T @ server.kept["users"], atol=1e-12)


def test_a_round_without_enough_answers_fails_after_all_repetitions(places: list[Path]) -> None:
    config = config_of(flower={"min_answers": 1.0, "repeats": 2})
    engine = engine_of(places, config, one_bad_node(lambda answer: [Letter({"error": "the disk is full"})]))
    with pytest.raises(RunError, match=r"Of 14 clients at least 14 should answer 'train'.*Found 9.*the disk is full"):
        trained(engine)


def test_nobody_is_waited_for_for_ever(places: list[Path]) -> None:
    engine = engine_of(places, config_of(flower={"repeats": 1}))
    engine._asking.courier.offline = {100, 101, 102}  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="Their nodes cannot be reached"):
        trained(engine)


def test_a_node_that_is_away_costs_no_time_and_comes_back_under_another_number(places: list[Path]) -> None:
    engine = engine_of(places)
    courier = engine._asking.courier
    assert isinstance(courier, InProcess)
    courier.offline = {BAD_NODE}
    assert trained(engine).n_answers == 9
    courier.offline = set()
    courier.restart(BAD_NODE, 777)
    assert trained(engine).n_answers == 14
    assert engine.population().tolist() == EVERYONE.tolist()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_clients_that_stay_away_are_not_in_the_sum(share: float, places: list[Path]) -> None:
    counts = [_answers(places, share, t) for t in range(4)]
    assert 0 < sum(counts) < 56
    assert len(set(counts)) > 1


def _answers(places: list[Path], share: float, number: int) -> int:
    """How many of 14 answer; their sum is that of a round in which nobody else was drawn."""
    config = config_of(flower={"min_answers": 0.01})
    engine = engine_of(places, config, faulty=dict.fromkeys((100, 101, 102), partial(Absent, share=share)))
    try:
        found = engine.train(server_of(engine), EVERYONE, number)
    except RunError:
        return 0
    assert found.refused == {}
    there = found.inbox.ids  # type: ignore[attr-defined]
    assert len(there) == found.n_answers
    alone = engine_of(places, config).train(server_of(engine), there, number)
    assert all(torch.equal(found.inbox.mean()[name], value) for name, value in alone.inbox.mean().items())
    return found.n_answers


BAD_RANKS: dict[str, Callable[[Letter], Letter]] = {
    "out of range": lambda a: changed(a, "above", lambda t: t - 200),
    "of another round": lambda a: about(a, round=7),
    "of nobody": lambda a: replace(a, tensors={name: value[:0] for name, value in a.tensors.items()}),
    "of more items than there are": lambda a: changed(a, "tied", lambda t: 129 - a.tensors["above"] + 1),
    "of some only": lambda a: replace(a, tensors={name: value[:-1] for name, value in a.tensors.items()}),
    "and more": lambda a: replace(a, tensors={**a.tensors, "more": torch.zeros(1)}),
}


@pytest.mark.parametrize("kind", BAD_RANKS)
def test_bad_ranks_are_refused(kind: str, places: list[Path]) -> None:
    spoil = BAD_RANKS[kind]

    def tamper(node: int, asked: str, answer: Letter) -> list[Letter | Lost]:
        return [spoil(answer)] if asked == "rank" and node == BAD_NODE else [answer]

    engine = engine_of(places, tamper=tamper)
    assert len(engine.ranks(server_of(engine), "test", "candidates").above) == 9
