from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import fedrecgel
from fedrecgel.engine.checkpoint import Checkpoint, Snapshot
from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.methods.base import Server
from fedrecgel.storage import read_tensors, write_atomically, write_tensors
from fedrecgel.tables import PersonalTable, State
from fedrecgel.tensors import Tensors


def tensors(start: int = 0) -> Tensors:
    return {
        "half": torch.randn(3, 2, dtype=torch.float64) + start,
        "steps": torch.arange(start, start + 5),
        "odd": torch.randn(7),
        "step": torch.tensor(3.0),
        "turned": torch.randn(4, 3).T,
    }


def equal(first: Tensors, second: Tensors) -> bool:
    return set(first) == set(second) and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("with_best", [False, True])
@pytest.mark.parametrize("kept", [{}, {"a.m": torch.ones(2)}])
def test_round_trip(with_best: bool, kept: Tensors, tmp_path: Path) -> None:
    totals = {"seconds_total": 1.5, "best": 0.1 + 0.2}
    written = Checkpoint(9, "abc", Server(tensors(), kept), State(tensors(3)), 4 if with_best else None, totals)
    written.write(tmp_path / "deep" / "state")
    found = Checkpoint.read(tmp_path / "deep" / "state")
    assert (found.round, found.run, found.totals) == (9, "abc", written.totals)
    assert equal(found.server.shared, written.server.shared)
    assert equal(found.server.kept, kept)
    assert equal(found.clients.tensors, written.clients.tensors)
    assert found.best_round == written.best_round


def test_round_trip_of_a_snapshot(tmp_path: Path) -> None:
    tables = {"items": PersonalTable.common(torch.randn(7, 2), 5)}
    written = Snapshot(4, tensors(1), State(tensors(2), tables))
    written.write(tmp_path / "best")
    found = Snapshot.read(tmp_path / "best")
    assert found.round == 4
    assert equal(found.shared, written.shared)
    assert equal(found.clients.pack(), written.clients.pack())
    with pytest.raises(RunFolderError, match="should be a checkpoint"):
        Checkpoint.read(tmp_path / "best")


def test_an_endless_best_value_survives(tmp_path: Path) -> None:
    """Before the first evaluation the best value is minus infinity."""
    Checkpoint(1, "", Server(tensors()), State(), None, {"best_value": float("-inf")}).write(tmp_path / "state")
    assert Checkpoint.read(tmp_path / "state").totals["best_value"] == float("-inf")


def test_tensors_come_back_aligned(tmp_path: Path) -> None:
    """Products with misaligned tensors differ in the last bits, and a resumed run would drift from an unbroken one."""
    write_tensors(tmp_path / "file", {**tensors(), "more": torch.zeros(100)}, {})
    found, _ = read_tensors(tmp_path / "file")
    assert {value.data_ptr() % 64 for value in found.values()} == {0}


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_tensors(path, tensors(), {"round": 1})
    before = path.read_bytes()

    def full_disk(temporary: Path) -> None:
        temporary.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=r"state' could not be written: .*No space left.*untouched"):
        write_atomically(path, full_disk)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_any_failure_leaves_no_temporary_file(tmp_path: Path) -> None:
    def interrupted(temporary: Path) -> None:
        temporary.write_bytes(b"half of it")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "state", interrupted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["folder", "file"])
def test_the_next_try_clears_what_a_killed_writer_left(tmp_path: Path, left: str) -> None:
    """Also temporary files of the library that writes, whose names only that library knows."""
    rooms: list[Path] = []

    def killed(temporary: Path) -> None:
        rooms.append(temporary.parent)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "state", killed)
    if left == "folder":
        rooms[0].mkdir()
        (rooms[0] / ".tmpXeQ3fz").write_bytes(b"half of it")
    else:
        rooms[0].write_bytes(b"half of it")
    write_tensors(tmp_path / "state", tensors(), {})
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("old")

    def write(temporary: Path) -> None:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert path.parent in temporary.parents  # renaming is atomic only within one file system

    write_atomically(path, write)
    assert path.read_text() == "new"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="could not be written"):
        write_tensors(tmp_path / "file" / "state", tensors(), {})


@pytest.mark.parametrize("left", [0, 4, 100, -1])
def test_a_truncated_file(left: int, tmp_path: Path) -> None:
    path = tmp_path / "state"
    Checkpoint(1, "", Server(tensors()), State(tensors()), None, {}).write(path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(StorageError, match="should be a complete safetensors file"):
        Checkpoint.read(path)
    with pytest.raises(StorageError, match="cannot be read"):
        Checkpoint.read(tmp_path / "absent")


def test_foreign_files(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(RunFolderError, match="another safetensors file"):
        Checkpoint.read(tmp_path / "foreign")
    write_tensors(tmp_path / "model", tensors(), {"item_ids": [1]})
    with pytest.raises(RunFolderError, match="should be a checkpoint"):
        Checkpoint.read(tmp_path / "model")


def test_no_pickle_anywhere() -> None:
    unsafe = {"pickle", "cPickle", "dill", "joblib", "shelve", "cloudpickle"}
    for path in Path(fedrecgel.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            if isinstance(node, ast.ImportFrom):
                names = {node.module or ""}
            assert not {name.split(".")[0] for name in names} & unsafe, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}, path
