from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from tests.builders import TINY, problem_of, random_split

from fedrecgel.draws import Draws
from fedrecgel.engine.flower.disk import DAY, HOUR, MERGE_AT, DiskStore, sweep
from fedrecgel.engine.flower.shard import read_shard, rejoin, write_shards
from fedrecgel.errors import DataError
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.pfedrec import PFedRec
from fedrecgel.methods.popularity import Popularity
from fedrecgel.tables import PersonalTable, State

SPLIT = random_split(n_users=14, n_items=130)
IDS = torch.tensor([2, 5, 9])


def opened(folder: Path, rounds: int, method: Method | None = None) -> DiskStore:
    return DiskStore(folder, method or FedNCF(**TINY), problem_of(SPLIT), Draws(0), rounds=rounds)


def learn(folder: Path, rounds: int, value: float, ids: torch.Tensor = IDS) -> None:
    store = opened(folder, rounds)
    state = store.read(ids)
    store.write(ids, State({name: torch.full_like(tensor, value) for name, tensor in state.tensors.items()}))
    store.commit()


def users(folder: Path, rounds: int, ids: torch.Tensor = IDS) -> list[float]:
    return [float(row[0]) for row in opened(folder, rounds).read(ids)["user"]]


def test_state_after_each_round_can_be_read_again(tmp_path: Path) -> None:
    initial = users(tmp_path, 0)
    learn(tmp_path, 0, 1.0)
    learn(tmp_path, 1, 2.0, IDS[:1])
    assert users(tmp_path, 0) == initial
    assert users(tmp_path, 1) == [1.0, 1.0, 1.0]
    assert users(tmp_path, 2) == [2.0, 1.0, 1.0]


def test_a_repeated_round_starts_where_it_started_before_and_replaces_what_came_after(tmp_path: Path) -> None:
    for number in range(4):
        learn(tmp_path, number, float(number))
    learn(tmp_path, 2, 20.0, IDS[1:])
    assert users(tmp_path, 9) == [1.0, 20.0, 20.0]


def test_what_was_not_committed_leaves_no_trace(tmp_path: Path) -> None:
    store = opened(tmp_path, 0)
    store.write(IDS, store.read(IDS))
    assert list(tmp_path.iterdir()) == []


def test_many_files_become_one_with_the_same_state(tmp_path: Path) -> None:
    for number in range(MERGE_AT + 2):
        learn(tmp_path, number, float(number), IDS[number % 3 :][:1])
    before = users(tmp_path, 100)
    store = opened(tmp_path, MERGE_AT + 1)
    store.merge()
    assert len(list(tmp_path.glob("round-*"))) == 2  # merged rounds, and the one that is not settled
    assert users(tmp_path, 100) == before
    learn(tmp_path, MERGE_AT + 2, 50.0, IDS[:1])
    assert users(tmp_path, 100)[0] == 50.0


def test_few_files_are_left_alone(tmp_path: Path) -> None:
    learn(tmp_path, 0, 1.0)
    opened(tmp_path, 1).merge()
    assert len(list(tmp_path.glob("round-*"))) == 1


def test_half_written_files_of_a_killed_process_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".round-00000007.safetensors.tmp").mkdir()
    (tmp_path / ".round-00000007.safetensors.tmp" / "half").write_bytes(b"half")
    learn(tmp_path, 0, 1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["round-00000000.safetensors"]


def test_personal_tables_survive(tmp_path: Path) -> None:
    method, ids = PFedRec(dim=3), torch.tensor([1, 4])
    store = opened(tmp_path, 0, method)
    state = store.read(ids)
    base = torch.randn(SPLIT.n_items, 3, dtype=torch.float64)
    rows = torch.tensor([[3, 7], [0, 0]])
    table = PersonalTable.common(base, 2).with_rows(
        rows, torch.tensor([[True, True], [True, False]]), torch.ones(2, 2, 3, dtype=torch.float64)
    )
    name = next(iter(state.tables))
    store.write(ids, State(state.tensors, {name: table}))
    store.commit()
    again = opened(tmp_path, 1, method).read(ids)
    assert torch.equal(again.tables[name].dense(), table.dense())


def test_a_method_without_private_state_writes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path, 0, Popularity())
    store.write(IDS, State())
    store.commit()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_nodes", [1, 3, 14])
@pytest.mark.parametrize("validation", [False, True])
def test_shards_together_are_the_split(n_nodes: int, validation: bool, tmp_path: Path) -> None:
    split = random_split(n_users=14, n_items=130, validation=validation)
    shards = [read_shard(place) for place in write_shards(split, tmp_path, n_nodes)]
    assert torch.cat([shard.users for shard in shards]).tolist() == list(range(14))
    train, names = rejoin(shards)
    assert names == split.interactions.user_ids
    assert (train.ptr == split.train.ptr).all()
    assert (train.items == split.train.items).all()
    assert (train.counts == split.train.counts).all()
    for shard in shards:
        mine = shard.users.numpy()
        assert (shard.split.test[mine] == split.test[mine]).all()
        assert (shard.split.candidates[mine] == split.candidates[mine]).all()
        assert shard.split.fingerprint == split.fingerprint
        assert len(shard.split.interactions) == len(split.interactions)
        assert shard.split.tie_rule == split.tie_rule
        others = [user for user in range(14) if user not in mine]
        assert shard.split.train.sizes(torch.tensor(others, dtype=torch.int64).numpy()).sum() == 0


def test_something_else_is_no_shard(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="A shard should be a folder with"):
        read_shard(tmp_path)


def test_runs_that_nobody_touched_for_long_are_swept_and_no_others(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for name, days in (("old", 31.0), ("resumed", 31.0), ("recent", 29.0)):
        learn(state / name, 0, 1.0)
        (state / name / ".round-00000001.safetensors.tmp").mkdir()
        for path in (*(state / name).iterdir(), state / name):
            os.utime(path, (time.time() - days * DAY,) * 2)
    learn(state / "resumed", 1, 2.0)
    outside = tmp_path / "outside"
    learn(outside, 0, 1.0)
    os.utime(outside, (0, 0))
    (state / "linked").symlink_to(outside)
    for name, hours in ((".half.tmp", 2.0), (".being-written.tmp", 0.0)):
        (state / name).mkdir()
        os.utime(state / name, (time.time() - hours * HOUR,) * 2)
    assert sweep(state, 30.0) == ["old"]
    assert sorted(path.name for path in state.iterdir()) == [".being-written.tmp", "linked", "recent", "resumed"]
    assert not list(state.glob("*/.*.tmp"))
    assert users(state / "resumed", 2) == [2.0, 2.0, 2.0]
    assert (outside / "round-00000000.safetensors").exists()
    assert sweep(tmp_path / "nothing", 30.0) == []
