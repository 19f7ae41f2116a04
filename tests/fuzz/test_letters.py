"""Hostile letters: to a node, to the server, and through Flower's own unpacking. Only typed errors; the run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import problem_of, random_split
from tests.engine.flower.inprocess import InProcess, config_of
from tests.fuzz.budget import inputs

from fedrecgel.channels.base import Plain
from fedrecgel.draws import Draws
from fedrecgel.engine.flower.asking import RemoteRun
from fedrecgel.engine.flower.engine import FlowerEngine
from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.roster import Roster
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import FedrecgelError, RunError
from fedrecgel.methods.messages import Server
from fedrecgel.runs.flower import work_of

SPLIT = random_split(n_users=14, n_items=130)
EVERYONE = torch.arange(14)
HOSTILE = 101
CONFIG = config_of(flower={"min_answers": 0.3, "repeats": 0, "nodes": 2}, evaluation={"full": False})
NAMES = (
    "ids",
    "users",
    "above",
    "tied",
    "weight",
    "cohort",
    "sum/item_gmf",
    "sum/b1",
    "each/user",
    "shared/item_gmf",
    "",
)
DTYPES = (torch.int64, torch.float64, torch.float32, torch.bool, torch.int8, torch.bfloat16, torch.complex64)

texts = st.text(max_size=6) | st.sampled_from(["run", "../..", "test", "candidates", "validation", "catalogue"])
plain = st.none() | st.booleans() | st.integers() | st.floats() | texts
documents = st.recursive(
    plain, lambda parts: st.lists(parts, max_size=3) | st.dictionaries(texts, parts, max_size=3), max_leaves=6
)
facts = st.dictionaries(
    st.sampled_from(
        [
            "round",
            "loss",
            "refused",
            "error",
            "since",
            "facts",
            "message",
            "messages",
            "run",
            "held_out",
            "against",
            "work",
        ]
    ),
    documents,
    max_size=3,
)
tensors = st.builds(
    lambda shape, dtype, value: torch.full(shape, value).to(dtype),
    st.lists(st.integers(0, 6), max_size=3),
    st.sampled_from(DTYPES),
    st.sampled_from([0.0, 1.0, -1.0, 5.0, 1e30, float("nan"), float("inf"), 2.0**62]),
)


@st.composite
def spoilt(draw: st.DrawFn, honest: Letter) -> Letter | Lost:
    """An answer with some of its facts and tensors replaced, left out or added."""
    about, found = {**honest.about, **draw(facts)}, dict(honest.tensors)
    for name in draw(st.lists(st.sampled_from([*found, *NAMES]), max_size=3)):
        if (value := draw(st.none() | tensors)) is None:
            found.pop(name, None)
        elif name in found and draw(st.booleans()):  # the right form, the wrong numbers
            number = float(value.flatten()[0].real) if value.numel() else 3.0
            found[name] = torch.full(found[name].shape, number, dtype=torch.float64).to(found[name].dtype)
        else:
            found[name] = value
    for name in draw(st.lists(st.sampled_from([*about]), max_size=2)) if about else []:
        about.pop(name, None)
    return Lost("silence") if draw(st.integers(0, 9)) == 9 else Letter(about, found)


class Replayed:
    """A courier whose honest nodes answer as they did once, and whose hostile node says anything."""

    def __init__(self, answers: Mapping[tuple[str, int], Letter]) -> None:
        self.answers = answers
        self.spoils = "none"
        self.hostile: Letter | Lost = Lost("silence")

    def nodes(self) -> dict[int, str]:
        return {node: f"key {node}" for node in (100, 101, 102)}

    def exchange(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        for node in letters:
            honest = self.answers[kind, node]
            fresh = Letter(dict(honest.about), {name: value.clone() for name, value in honest.tensors.items()})
            yield node, self.hostile if node == HOSTILE and kind == self.spoils else fresh


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Letter]:
    """One honest answer of every kind and node."""
    places = write_shards(SPLIT, tmp_path_factory.mktemp("shards"), 3)
    found: dict[tuple[str, int], Letter] = {}

    def keep(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        found[kind, node] = answer
        return [answer]

    engine = engine_over(InProcess(places, keep))
    server = server_of(engine)
    engine.train(server, EVERYONE, 0)
    engine.ranks(server, "test", "candidates")
    return found


def engine_over(courier: Any) -> FlowerEngine:
    roster = Roster(courier, CONFIG.flower)
    roster.gather()
    run = RemoteRun("run", json.dumps(CONFIG.to_dict()))
    method = CONFIG.method.build()
    return FlowerEngine(method, Plain(), problem_of(SPLIT), roster, courier, run, CONFIG.flower, CONFIG.gate)


def server_of(engine: FlowerEngine) -> Server:
    return engine.method.init_server(problem_of(SPLIT), Draws(0))


@inputs(40)
@given(data=st.data())
def test_no_answer_stops_the_server(recorded: dict[tuple[str, int], Letter], data: st.DataObject) -> None:
    """The two honest nodes are in every sum, which stays finite, and in every ranking."""
    kind = data.draw(st.sampled_from(["hello", "train", "train", "rank"]))
    courier = Replayed(recorded)
    courier.hostile, courier.spoils = data.draw(spoilt(recorded[kind, HOSTILE])), kind
    try:
        engine = engine_over(courier)
    except RunError:  # it claims users of another node: a run does not start before somebody says whose they are
        assert kind == "hello"
        return
    server = server_of(engine)
    trained = engine.train(server, EVERYONE, 0)
    assert 9 <= trained.n_answers <= 14
    assert all(bool(torch.isfinite(value).all()) for value in trained.inbox.mean().values())
    assert trained.loss is None or bool(torch.isfinite(trained.loss))
    ranks = engine.ranks(server, "test", "candidates")
    assert 9 <= len(ranks.above) <= 14
    assert all(0 <= count <= 14 for count in trained.refused.values())


@inputs(40)
@given(data=st.data())
def test_no_letter_makes_a_node_stumble(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """It answers, or says in words why not."""
    kind = data.draw(st.sampled_from(["hello", "prepare", "train", "rank", "other"]))
    work = json.dumps(CONFIG.to_dict())
    about = {"run": "run", "round": 0, "work": work, "held_out": "test", "against": "candidates"}
    letter = data.draw(spoilt(Letter(about, {"ids": torch.tensor([0, 3])})))
    node = Node(_place(tmp_path_factory), work_of)
    with suppress(FedrecgelError):  # an error of another kind fails the test
        found = node.answer(kind, letter if isinstance(letter, Letter) else Letter(about))
        assert isinstance(found, Letter)


def _place(factory: pytest.TempPathFactory) -> Path:
    place = factory.getbasetemp() / "fuzzed-shards"
    return place / "node-0" if place.exists() else write_shards(SPLIT, place, 3)[0]


@inputs(40)
@given(data=st.data())
def test_no_object_of_a_message_stops_the_server(data: st.DataObject, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node hands to Flower is bytes, and Flower unpacks them: a bad answer is lost, the next one is read."""
    pytest.importorskip("flwr", reason="needs the extra 'flower'")
    from flwr.supercore.task_identity import TaskIdentity
    from tests.engine.flower.runtime import LocalGrid, Runtime

    from fedrecgel.engine.flower.apps import GridCourier, to_records

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    spoils = data.draw(st.sampled_from(["Message", "RecordDict", "ArrayRecord", "ConfigRecord", "Array", "ArrayChunk"]))

    def change(kind: str, content: bytes) -> bytes:
        if kind != spoils:
            return content
        at = data.draw(st.integers(0, len(content)))
        upto = data.draw(st.integers(at, min(len(content), at + 8)))
        return content[:at] + data.draw(st.binary(max_size=8)) + content[upto:]

    runtime = Runtime()
    runtime.put("m2", to_records(Letter({"round": 0}, {"ids": torch.arange(3), "sum/b1": torch.randn(4)})), change)
    runtime.put("m3", to_records(Letter({"fine": 1})))
    asked = Letter({})
    found = dict(GridCourier(LocalGrid(runtime)).exchange("train", {2: asked, 3: asked}, 60.0))
    assert isinstance(found[2], Letter | Lost)
    assert found[3] == Letter({"fine": 1})
