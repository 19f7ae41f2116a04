"""Power may fail after any operation on a file: what is left is the old state or the new one, and a run goes on."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import TINY, problem_of, random_split
from tests.engine.power import Left, lay_out, recorded

import fedrecgel
from fedrecgel.draws import Draws
from fedrecgel.engine.checkpoint import Checkpoint, Snapshot
from fedrecgel.engine.flower import exchange
from fedrecgel.engine.flower.disk import DiskStore
from fedrecgel.engine.flower.exchange import FILE, keep, take
from fedrecgel.errors import RunFolderError
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.messages import Server
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.result import Result
from fedrecgel.runs.train import train_config
from fedrecgel.storage import TEMPORARY, write_text
from fedrecgel.tables import State

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which file is synced")
SPLIT = random_split(n_users=6, n_items=130)
IDS = torch.tensor([2, 5])


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


def losing_power(disk: Path, work: Callable[[], object]) -> list[list[Left]]:
    """What may be left, for every operation of this work."""
    moments: list[list[Left]] = []
    with recorded(disk, moments):
        work()
    return moments


def each(moments: list[list[Left]], room: Path) -> list[Path]:
    """All of it, laid out; what differs in temporary files only, once."""
    places = set()
    for left in (left for moment in moments for left in moment):
        lasting = sorted((name, content) for name, content in left.items() if TEMPORARY not in name)
        place = room / f"left-{sha256(repr(lasting).encode()).hexdigest()}"
        if not place.exists():
            lay_out(left, place)
        places.add(place)
    return sorted(places)


def checkpoint(round: int) -> Checkpoint:
    server = Server({"items": torch.full((40,), float(round))}, {"moment": torch.full((3,), -float(round))})
    return Checkpoint(round, "run", server, State({"user": torch.full((4,), 10.0 * round)}), None, {})


def numbers(path: Path) -> list[float]:
    """Everything a checkpoint says about its round."""
    if not path.exists():
        return [0.0] * 4
    found = Checkpoint.read(path)
    server = found.server
    values = server.shared["items"][-1], -server.kept["moment"][0], found.clients["user"][0] / 10
    return [found.round, *map(float, values)]


def test_a_checkpoint_is_the_old_one_or_the_new_one(disk: Path, tmp_path: Path) -> None:
    """Also the first, in folders that are not there yet."""
    path = Path("runs", "mine", "checkpoint", "state.safetensors")
    for number in (1, 2):
        moments = losing_power(disk, partial(checkpoint(number).write, disk / path))
        found = [numbers(place / path) for place in each(moments, tmp_path)]
        assert all(one in ([number - 1] * 4, [number] * 4) for one in found)
        assert all(numbers(place / path) == [number] * 4 for place in each(moments[-1:], tmp_path))
    assert len(moments) > 8, "every operation is seen"


def test_a_text_is_the_old_one_or_the_new_one(disk: Path, tmp_path: Path) -> None:
    (disk / "note").write_text("old")
    moments = losing_power(disk, lambda: write_text(disk / "note", "new"))
    assert {(place / "note").read_text() for place in each(moments, tmp_path)} == {"old", "new"}
    assert {(place / "note").read_text() for place in each(moments[-1:], tmp_path)} == {"new"}


def config(rounds: int) -> Config:
    return from_dict(
        {
            "data": {"name": "tiny"},
            "method": {"name": "fedncf", **TINY},
            "run": {"rounds": rounds},
            "evaluation": {"every": 1, "full": False, "selection": "test"},
            "checkpoint": {"every": 1},
        }
    )


def timeless(result: Result) -> list[Any]:
    """What a run reached, without its clock."""
    history = [{key: value for key, value in line.items() if "seconds" not in key} for line in result.history]
    tensors = {**result.shared, **result.clients.pack()}
    return [history, result.metrics, {name: value.tolist() for name, value in tensors.items()}]


@cache
def finished(place: Path) -> Result | None:
    """The run, if it is complete; anything in between is an error."""
    try:
        return fedrecgel.open(place)
    except RunFolderError as error:
        assert "no finished run" in str(error) or "no config.toml" in str(error)  # noqa: PT017 - may be complete, too
        return None


@cache
def rounds_saved(place: Path) -> int:
    """Rounds that need not be trained again; the model of the selected round is there, too."""
    folder = RunFolder(place)
    if not folder.config.exists() or not folder.checkpoint.exists():
        return 0
    saved = Checkpoint.read(folder.checkpoint)
    assert [line["round"] for line in saved.history] == list(range(1, saved.round + 1))
    assert saved.best_round is not None
    assert Snapshot.read(folder.best(saved.best_round), saved.run).round == saved.best_round
    return saved.round


@pytest.mark.parametrize("before", [0, 1])
def test_a_run_goes_on_from_whatever_is_left(before: int, disk: Path, tmp_path: Path) -> None:
    """From its start to its end, and when a finished run is extended."""
    straight = timeless(train_config(config(2), SPLIT))
    old = timeless(train_config(config(before), SPLIT, RunFolder(disk / "run"))) if before else None
    work = partial(train_config, config(2), SPLIT, RunFolder(disk / "run"), resume=before > 0)
    moments = losing_power(disk, work)
    least = before
    resumed: set[tuple[int, bool]] = set()
    for moment in moments:
        places = [place / "run" for place in each([moment], tmp_path)]
        saved = [rounds_saved(place) for place in places]
        assert max(saved) <= min(saved) + 1, "the old checkpoint or the new one"
        assert min(saved) >= least, "what was safe once stays"
        least = min(saved)
        for place, n_saved in zip(places, saved, strict=True):
            complete = finished(place)
            assert complete is None or timeless(complete) in (old, straight)
            if (n_saved, complete is None) not in resumed and RunFolder(place).config.exists():
                resumed.add((n_saved, complete is None))
                copy = RunFolder(tmp_path / f"copy-{len(resumed)}")
                shutil.copytree(place, copy.path)
                if copy.claim(config(2).to_dict(), resume=True) == "resumed":
                    assert timeless(train_config(config(2), SPLIT, copy, resume=True)) == straight
    assert least == 2
    assert len(resumed) >= 3
    assert all(finished(place / "run") is not None for place in each(moments[-1:], tmp_path))


def store(folder: Path, rounds: int) -> DiskStore:
    return DiskStore(folder, FedNCF(**TINY), problem_of(SPLIT), Draws(0), rounds=rounds)


def learn(folder: Path, rounds: int, value: float) -> None:
    found = store(folder, rounds)
    filled = {name: torch.full_like(tensor, value) for name, tensor in found.read(IDS).tensors.items()}
    found.write(IDS, State(filled))
    found.commit()


def test_a_node_keeps_a_round_whole_or_not_at_all(disk: Path, tmp_path: Path) -> None:
    """A round that is taken back does not come back either."""
    state = Path("state", "run")
    initial = float(store(disk / state, 0).read(IDS)["user"][0, 0])
    moments = losing_power(disk, lambda: learn(disk / state, 0, 1.0))
    places = each(moments, tmp_path)
    assert {float(store(place / state, 1).read(IDS)["user"][0, 0]) for place in places} >= {1.0}
    assert all(float(store(place / state, 1).read(IDS)["user"][0, 0]) in (initial, 1.0) for place in places)
    assert all(store(place / state, 1).trained().tolist() == IDS.tolist() for place in each(moments[-1:], tmp_path))
    learn(disk / state, 1, 2.0)
    learn(disk / state, 2, 3.0)
    moments = losing_power(disk, lambda: learn(disk / state, 1, 20.0))
    for place in each(moments, tmp_path):
        assert float(store(place / state, 1).read(IDS)["user"][0, 0]) == 1.0
        assert float(store(place / state, 2).read(IDS)["user"][0, 0]) in (1.0, 2.0, 20.0)
    for place in each(moments[-1:], tmp_path):
        assert float(store(place / state, 9).read(IDS)["user"][0, 0]) == 20.0


def test_a_secret_that_was_taken_does_not_come_back(disk: Path, tmp_path: Path) -> None:
    keep(disk / "node", exchange.State("prepare", "round 0", 7, "00"))
    moments = losing_power(disk, lambda: take(disk / "node", "prepare", "round 0", 7))
    assert not any((place / "node" / FILE).exists() for place in each(moments[-1:], tmp_path))
