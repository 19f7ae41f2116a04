from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fedrecgel.engine.checkpoint import Checkpoint, Snapshot
from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.methods.messages import Server
from fedrecgel.storage import write_tensors
from fedrecgel.tables import PersonalTable, State
from fedrecgel.tensors import Tensors

HISTORY: list[dict[str, Any]] = [{"round": 1, "loss": 0.1 + 0.2, "clients": 3}, {"round": 2, "loss": None}]


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
    written = Checkpoint(
        9, "abc", Server(tensors(), kept), State(tensors(3)), 4 if with_best else None, totals, HISTORY
    )
    written.write(tmp_path / "deep" / "state")
    found = Checkpoint.read(tmp_path / "deep" / "state")
    assert (found.round, found.run, found.totals) == (9, "abc", written.totals)
    assert equal(found.server.shared, written.server.shared)
    assert equal(found.server.kept, kept)
    assert equal(found.clients.tensors, written.clients.tensors)
    assert found.best_round == written.best_round
    assert found.history == HISTORY


def test_round_trip_of_a_snapshot(tmp_path: Path) -> None:
    tables = {"items": PersonalTable.common(torch.randn(7, 2), 5)}
    written = Snapshot(4, "abc", tensors(1), State(tensors(2), tables))
    written.write(tmp_path / "best")
    found = Snapshot.read(tmp_path / "best", "abc")
    assert found.round == 4
    assert equal(found.shared, written.shared)
    assert equal(found.clients.pack(), written.clients.pack())
    with pytest.raises(StorageError, match=r"Invalid enum value 'snapshot' - at `\$\.kind`"):
        Checkpoint.read(tmp_path / "best")
    with pytest.raises(RunFolderError, match="best' belongs to another run"):
        Snapshot.read(tmp_path / "best", "xyz")


def test_an_endless_best_value_survives(tmp_path: Path) -> None:
    """Before the first evaluation the best value is minus infinity."""
    Checkpoint(1, "", Server(tensors()), State(), None, {"best_value": float("-inf")}).write(tmp_path / "state")
    assert Checkpoint.read(tmp_path / "state").totals["best_value"] == float("-inf")


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
    write_tensors(tmp_path / "model", tensors(), {"item_ids": [1]}, "abc")
    with pytest.raises(StorageError, match="missing required field `kind`"):
        Checkpoint.read(tmp_path / "model")
