from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.results import SETTINGS, write_csv

from fedrecgel.cli.main import main

Capture = pytest.CaptureFixture[str]


def train(csv: Path, *more: str) -> int:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    out = ["--out", str(csv.parent / "run"), "--rounds", "3", "--quiet"]
    return main(["train", "--dataset", str(csv), "--tensorboard", *out, *settings, *more])


def test_tensorboard_shows_what_metrics_jsonl_holds(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert train(write_csv(tmp_path / "shop.csv"), "--set", "evaluation.selection=validation") == 0
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    shown = {"train/loss": "loss", "test/HR@10": "HR@10", "bytes/up": "bytes_up"}
    for tag, key in shown.items():
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        assert found == [(line["round"], pytest.approx(line[key], rel=1e-6)) for line in lines]
    assert "validation/HR@10" in events.Tags()["scalars"]


def test_without_tensorboard_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    assert train(write_csv(tmp_path / "shop.csv")) == 2
    assert "fedrecgel[report]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
