"""What a server that knows the seed can work out about the users of a node, with and without a secret."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.attacks import predict_laplace
from tests.builders import problem_of, random_split
from tests.engine.flower.inprocess import OPEN, InProcess, config_of, same, served
from torch import Tensor

from fedrecgel.audit.guesses import f1
from fedrecgel.audit.replay import replay_negatives
from fedrecgel.draws import Draws
from fedrecgel.engine.flower.node import Node
from fedrecgel.engine.flower.secret import FILE, own_secret
from fedrecgel.engine.flower.shard import read_shard, write_shards
from fedrecgel.engine.flower.wire import Letter, Lost, pack_download
from fedrecgel.errors import StorageError
from fedrecgel.runs.flower import work_of
from fedrecgel.storage import read_tensors

SPLIT = random_split(n_users=8, n_items=2000)
QUIET = {"dim": 4, "lr": 1e-9}
"""FedMF that hardly moves: what a node keeps is what it started with."""
NOISY = {"dim": 4, "layers": [4], "noise": 0.1}
"""GPFedRec with noise on everything it sends."""


def asked(
    place: Path, user: int, method: str, options: dict[str, Any], *, simulated: bool, change: float = 0
) -> Letter:
    """What a node answers when the server asks one user to train in the first round."""
    config = config_of(method, method=options)
    built, ids = config.method.build(), torch.tensor([user])
    server = built.init_server(problem_of(SPLIT), Draws(config.run.seed))
    down = pack_download(built.broadcast(server, ids), torch.tensor([0]))
    tensors = {"ids": ids, **down, "shared/items": down["shared/items"] + change}
    letter = Letter({"run": "a-run", "round": 0, "work": json.dumps(config.to_dict())}, tensors)
    return Node(place, work_of, simulated=simulated, policy=OPEN).answer("train", letter)


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    """One user to a node."""
    return write_shards(SPLIT, tmp_path / "nodes", SPLIT.n_users)


def touched(answer: Letter) -> list[int]:
    return answer.tensors["sum/items"].abs().sum(1).nonzero()[:, 0].tolist()


@pytest.mark.parametrize("simulated", [True, False], ids=["seed", "secret"])
def test_row_numbers_and_the_seed_give_the_history_unless_a_secret_drew_the_negatives(
    places: list[Path], simulated: bool
) -> None:
    replayed, guessed = [], []
    for user, place in enumerate(places):
        rows = touched(asked(place, user, "fedmf", {"dim": 4}, simulated=simulated))
        own = set(SPLIT.train.items[SPLIT.train.ptr[user] : SPLIT.train.ptr[user + 1]].tolist())
        assert own < set(rows)
        replayed.append(f1(replay_negatives(rows, SPLIT.n_items, user, 0, seed=0), own))
        guessed.append(f1(set(rows), own))
    if simulated:
        assert np.mean(replayed) > 0.95
    else:
        assert np.mean(replayed) <= np.mean(guessed) + 0.03


def test_the_seed_gives_the_vectors_of_a_simulation_and_of_no_node(places: list[Path]) -> None:
    started = config_of("fedmf", method=QUIET).method.build().init_clients(problem_of(SPLIT), torch.arange(8), Draws(0))
    for simulated in (True, False):
        for user, place in enumerate(places):
            asked(place, user, "fedmf", QUIET, simulated=simulated)
        found = torch.cat([kept(place)["user"] for place in places])
        assert torch.allclose(found, started["user"], rtol=0, atol=1e-6) == simulated
        correlation = np.corrcoef(found.flatten(), started["user"].flatten())[0, 1]
        assert (correlation > 0.999) if simulated else (abs(correlation) < 0.6)  # of 32 numbers: p = 3e-4


def kept(place: Path) -> dict[str, Tensor]:
    (path,) = place.glob("state/a-run/round-*.safetensors")
    return dict(read_tensors(path, dict)[0])


@pytest.mark.parametrize("simulated", [True, False], ids=["seed", "secret"])
def test_two_entries_without_content_take_the_noise_off_a_simulated_node_only(
    places: list[Path], simulated: bool
) -> None:
    sent, clean = (
        asked(places[0], 0, "gpfedrec", NOISY | {"noise": scale}, simulated=simulated).tensors["each/items"].numpy()
        for scale in (0.1, 0.0)
    )
    noise, untouched = sent.flatten() / 0.1, np.flatnonzero(clean == 0)  # most of all entries
    first, second = untouched[10], untouched[20]
    found = predict_laplace(noise[first], first, noise[second], second, len(noise))
    assert (found is not None) == simulated
    if found is not None:
        np.testing.assert_allclose(sent.flatten() - 0.1 * found, clean.flatten(), rtol=0, atol=1e-9)


def test_asking_again_gives_the_same_bits_and_asking_otherwise_other_noise(places: list[Path]) -> None:
    first, again, other = (
        asked(places[0], 0, "gpfedrec", NOISY, simulated=False, change=change).tensors for change in (0.0, 0.0, 1e-6)
    )
    same(first, again)
    moved = (other["each/items"] - first["each/items"]).abs()
    assert moved.median() > 0.01, "noise that comes back cancels, and the difference shows what was sent"


def test_on_nodes_with_secrets_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    config = config_of("gpfedrec", method=NOISY, run={"rounds": 2}, flower={"nodes": 2})
    places = write_shards(SPLIT, tmp_path / "nodes", 2)
    straight = served(config, SPLIT, tmp_path / "straight", InProcess(places, simulated=False), simulated=False)

    def kill(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        if kind == "train" and answer.about["round"] == 1 and node == 101:
            raise KeyboardInterrupt
        return [answer]

    with pytest.raises(KeyboardInterrupt):
        served(config, SPLIT, tmp_path / "killed", InProcess(places, kill, simulated=False), simulated=False)
    courier = InProcess(places, simulated=False)
    resumed = served(config, SPLIT, tmp_path / "killed", courier, resume=True, simulated=False)
    same(straight.shared, resumed.shared)
    assert straight.metrics == resumed.metrics
    elsewhere = InProcess(write_shards(SPLIT, tmp_path / "others", 2), simulated=False)
    other = served(config, SPLIT, tmp_path / "other", elsewhere, simulated=False)
    assert any(not torch.equal(value, other.shared[name]) for name, value in straight.shared.items())


def test_a_secret_is_made_once_and_read_by_nobody_else(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(own_secret, [tmp_path / "state"] * 8, ["settings"] * 8))
    assert found == {own_secret(tmp_path / "state", "settings")}
    assert own_secret(tmp_path / "state", "other settings") not in found
    assert own_secret(tmp_path / "other", "settings") not in found
    assert len(found.pop()) == 32
    assert (tmp_path / "state" / FILE).stat().st_mode & 0o777 == 0o600


def test_a_secret_that_is_cut_short_or_open_to_others_is_refused(tmp_path: Path) -> None:
    own_secret(tmp_path, "settings")
    (tmp_path / FILE).chmod(0o640)
    with pytest.raises(StorageError, match=r"readable by its owner only. Found mode 640: use chmod 600"):
        own_secret(tmp_path, "settings")
    (tmp_path / FILE).chmod(0o600)
    (tmp_path / FILE).write_bytes(b"short")
    with pytest.raises(StorageError, match=r"should hold 32 bytes. Found 5"):
        own_secret(tmp_path, "settings")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not be written"):
        own_secret(tmp_path / "file", "settings")


def test_a_simulation_has_no_secret(places: list[Path]) -> None:
    asked(places[0], 0, "fedmf", QUIET, simulated=True)
    assert not (read_shard(places[0]).state / FILE).exists()
