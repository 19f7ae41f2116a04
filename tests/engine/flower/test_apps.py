"""Letters as Flower's messages, without a SuperLink."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import random_split
from tests.engine.flower.curious import letter
from tests.engine.flower.inprocess import config_of
from tests.extension.test_channel import Mine

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from tests.engine.flower.runtime import Change, LocalGrid, Runtime, as_it_is, with_body

from fedrecgel.channels.registry import CHANNELS
from fedrecgel.engine.flower import apps
from fedrecgel.engine.flower.apps import (
    GridCourier,
    client_app,
    fingerprint,
    from_records,
    in_common,
    server_app,
    to_records,
)
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.superlink import app_files
from fedrecgel.engine.flower.supernode import check_bundle
from fedrecgel.engine.flower.wire import Courier, Letter, Lost
from fedrecgel.errors import PolicyError
from fedrecgel.runs.flower import serve, work_of
from fedrecgel.runs.policy import read_policy
from fedrecgel.runs.result import open_run

SPLIT = random_split(n_users=14, n_items=130)


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message belongs to a task; outside a run there is none."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class LoopGrid(Grid):
    """A grid that calls the client's app at once; node 5 is dead, node 6 sends rubbish, node 7 was given up."""

    def __init__(self, shards: Path, n_nodes: int) -> None:
        self.app = client_app(work_of, read_policy, shards)
        self.contexts = {node: Context(1, node, {"partition-id": node}, RecordDict(), {}) for node in range(n_nodes)}
        self.replies: dict[str, Message] = {}
        self.n_sent = 0

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return self.contexts

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            self.n_sent += 1
            number, node = f"m{self.n_sent}", message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = number
            if node == 6:
                reply = Message(RecordDict({"about": ConfigRecord({"json": "[]"})}), reply_to=message)
            elif node == 7:
                reply = Message(Error(3, "Node Unavailable"), reply_to=message)
            elif node != 5:
                reply = self.app(message, self.contexts[node])
            if node != 5:
                self.replies[number] = reply
            yield number

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(number) for number in list(message_ids) if number in self.replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"a/b": torch.randn(3, 4), "ids": torch.arange(5), "none": torch.zeros(0, 3), "one": torch.tensor(2.5)},
        {"big": torch.randn(900, 900, dtype=torch.float64), "flags": torch.tensor([True, False])},
        {"each/items": torch.randn(2, 3).bfloat16(), "none": torch.zeros(0).bfloat16()},
    ],
)
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_a_letter_arrives_as_it_was_sent(
    tensors: dict[str, torch.Tensor], small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps, "SMALL_BYTES", small)
    letter = Letter({"round": 3, "text": "ü", "list": [1, None, 2.5]}, tensors)
    again = from_records(to_records(letter, common={"ids", "big"}))
    assert again.about == letter.about
    assert again.tensors.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(again.tensors[name], value)
        assert again.tensors[name].dtype == value.dtype


def test_silence_rubbish_and_errors_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "POLL_SECONDS", 0.01)
    write_shards(SPLIT, tmp_path, 3)
    courier = GridCourier(LoopGrid(tmp_path, 3))
    found = dict(courier.exchange("hello", {node: Letter({}) for node in (0, 5, 6, 7)}, 0.2))
    assert isinstance(found[0], Letter)
    assert found[0].tensors["users"].tolist() == [0, 1, 2, 3, 4]
    reasons = {node: answer.reason for node, answer in found.items() if isinstance(answer, Lost)}
    assert reasons[5] == "no answer within 0.2 s"
    assert "cannot be read" in reasons[6]
    assert reasons[7] == "Node Unavailable"


def pulled(letter: Letter, change: Change = as_it_is, most_bytes: int = 1 << 20) -> tuple[Letter | Lost, Runtime]:
    """What arrives of an answer of node 2, whose objects are changed on the way, beside a good one of node 3."""
    runtime, good = Runtime(), Letter({"fine": 1}, {"ids": torch.arange(3)})
    runtime.put("m3", to_records(good))
    runtime.put("m2", to_records(letter), change)
    asked = Letter({}, answer_bytes=most_bytes)
    found = dict(GridCourier(LocalGrid(runtime)).exchange("train", {2: asked, 3: asked}, 60.0))
    assert isinstance(found[3], Letter), "one node's answer takes no other with it"
    assert found[3].tensors["ids"].tolist() == [0, 1, 2]
    return found[2], runtime


def _repeated(kind: str, content: bytes) -> bytes:
    """Every chunk of an array a thousand times: little that travels unfolds to much."""
    more = lambda about: {**about, "arraychunk_ids": 1000 * about["arraychunk_ids"]}  # noqa: E731
    return with_body(content, more) if kind == "Array" else content


def _missing(kind: str, content: bytes) -> bytes:
    return with_body(content, lambda about: {**about, "arraychunk_ids": [7]}) if kind == "Array" else content


def _rubbish(kind: str, content: bytes) -> bytes:
    return content[:-40] if kind == "Array" else content


def test_flowers_own_grid_carries_letters() -> None:
    letter = Letter({"round": 1}, {"a": torch.randn(300, 300), "b": torch.zeros(2, 0)})
    found, _ = pulled(letter)
    assert isinstance(found, Letter)
    assert torch.equal(found.tensors["a"], letter.tensors["a"])


@pytest.fixture
def as_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As large letters travel."""
    monkeypatch.setattr(apps, "SMALL_BYTES", 0)


@pytest.mark.usefixtures("as_arrays")
@pytest.mark.parametrize("change", [_missing, _rubbish])
def test_an_answer_that_flower_cannot_unpack_is_lost(change: Change) -> None:
    found, _ = pulled(Letter({}, {"a": torch.randn(30)}), change)
    assert isinstance(found, Lost)
    assert "cannot be read" in found.reason


def test_an_answer_that_is_too_long_is_lost_before_it_is_decoded() -> None:
    long = Letter({}, {"a": torch.zeros(1 << 20), "b": torch.ones(1 << 19)})
    found, _ = pulled(long)
    assert isinstance(found, Lost)
    assert "may have 1048576" in found.reason
    assert isinstance(pulled(long, most_bytes=7 << 20)[0], Letter)


def test_an_answer_that_holds_no_tensors_is_lost() -> None:
    def spoil(kind: str, content: bytes) -> bytes:
        return content.replace(b"F32", b"F99")

    found, _ = pulled(Letter({}, {"a": torch.randn(30)}), spoil)
    assert isinstance(found, Lost)
    assert "cannot be read" in found.reason


@pytest.mark.usefixtures("as_arrays")
def test_an_answer_that_unfolds_is_lost_before_it_does() -> None:
    found, runtime = pulled(Letter({}, {"a": torch.zeros(2000)}), _repeated)
    assert isinstance(found, Lost)
    assert "may have 1048576" in found.reason
    assert sum(len(content) for content in runtime.objects.values()) < 1 << 16


def test_a_node_answers_for_nobody_else() -> None:
    runtime, asked = Runtime(), Letter({})
    runtime.put("m2", to_records(Letter({"forged": 1})), claims="m3")
    runtime.put("m3", to_records(Letter({"honest": 1})))
    found = dict(GridCourier(LocalGrid(runtime)).exchange("train", {2: asked, 3: asked}, 60.0))
    assert found == {2: Lost("its answer is to another message"), 3: Letter({"honest": 1})}


def test_a_simulations_answers_are_capped_too() -> None:
    records = to_records(Letter({"long": "x" * 600}, {"a": torch.zeros(100)}))
    assert from_records(records, 1200).tensors["a"].shape == (100,)
    with pytest.raises(ValueError, match="may have 1000"):
        from_records(records, 1000)


def test_what_letters_have_in_common_is_kept_once() -> None:
    table = torch.randn(5)
    letters = [Letter({}, {"shared/items": table, "ids": torch.tensor([number])}) for number in range(3)]
    assert in_common(letters) == {"shared/items"}
    records = [to_records(one, in_common(letters)) for one in letters]
    assert len({one["common"].object_id for one in records}) == 1
    assert len({one["own"].object_id for one in records}) == 3


def test_a_fingerprint_is_the_one_that_ssh_prints(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", tmp_path / "key"], check=True)
    printed = subprocess.run(
        ["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], check=True, capture_output=True, text=True
    )
    key = load_ssh_public_key((tmp_path / "key.pub").read_bytes())
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert fingerprint(pem) == printed.stdout.split()[1]
    assert fingerprint(b"a") != fingerprint(b"b") != fingerprint(b"") == ""


def test_a_node_says_what_went_wrong(tmp_path: Path) -> None:
    courier = GridCourier(LoopGrid(tmp_path, 1))
    (answer,) = dict(courier.exchange("hello", {0: Letter({})}, 5.0)).values()
    assert isinstance(answer, Letter)
    assert "A shard should be a folder" in answer.about["error"]


def test_a_real_node_obeys_the_policy_it_was_started_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (place,) = write_shards(SPLIT, tmp_path / "shards", 1)
    rules = tmp_path / "policy.toml"
    grid = LoopGrid(tmp_path, 1)
    own: dict[str, bool | float | int | str] = {"shard": str(place), "policy": str(rules)}
    grid.app, grid.contexts[0] = client_app(work_of, read_policy), Context(1, 0, own, RecordDict(), {})

    def said(text: str) -> str:
        rules.write_text(text)
        ((_, answer),) = GridCourier(grid).exchange("train", {0: letter([0, 1, 2])}, 5.0)
        assert isinstance(answer, Letter)
        return str(answer.about["error"])

    with caplog.at_level("WARNING", logger="flwr"):
        apps.log.propagate = True
        try:
            assert "policy.min_users = 4" in said("[policy]\nmin_users = 4\n")
        finally:
            apps.log.propagate = False
    assert "Refused 'train': At least policy.min_users = 4" in caplog.text
    assert "Did you mean 'min_users'?" in said("[policy]\nmin_user = 4\n")  # nothing is answered by guesswork
    assert "runs fedmf" in said('[policy]\nmethods = ["fedmf"]\n')


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # in Flower's own code
def test_only_the_bundle_of_this_package_is_known() -> None:
    def bundle(**changed: str) -> bytes:
        files = {name: text.encode() for name, text in {**app_files(), **changed}.items()}
        return build_fab_from_files(files)[0]

    check_bundle(bundle())
    other = [bundle(**{"fedrecgel_run/client_app.py": "import os\n"}), bundle(**{"fedrecgel_run/more.py": ""})]
    for content in [*other, b"", b"PK", bundle()[:-1], bundle(**{"README.md": "x" * (2 << 20)})]:
        with pytest.raises(PolicyError, match="nothing of it was run"):
            check_bundle(content)


@pytest.mark.parametrize("channel", ["plain", "mine"])
def test_a_run_of_the_server_app(channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mine` begins every round with an exchange, so all kinds of letters travel."""
    monkeypatch.setitem(CHANNELS, "mine", Mine)
    monkeypatch.setattr(apps, "POLL_SECONDS", 0.01)
    shards, folder = tmp_path / "shards", tmp_path / "run"
    write_shards(SPLIT, shards, 3)
    config = config_of(run={"channel": channel}, flower={"round_seconds": 60.0, "wait_seconds": 60.0})
    order: dict[str, bool | float | int | str] = {
        "config": json.dumps(config.to_dict()),
        "folder": str(folder),
        "resume": False,
    }
    server_app(partial(serve, shards=shards))(LoopGrid(shards, 3), Context(1, 0, {}, RecordDict(), order))
    assert open_run(folder).summary["rounds"] == 3


def test_a_failed_run_says_why_in_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(courier: Courier, order: Any) -> None:
        raise ValueError("no such\nthing")

    monkeypatch.setattr(apps.log, "propagate", True)
    app, context = server_app(fail), Context(1, 0, {}, RecordDict(), {})
    with caplog.at_level("ERROR", logger="flwr"), pytest.raises(ValueError, match="no such"):
        app(LoopGrid(Path(), 0), context)
    assert "fedrecgel failed: unexpected ValueError: no such thing" in caplog.text
