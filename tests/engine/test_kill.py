"""SIGKILL at any moment, then --resume: the same bits as never stopping."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedrecgel.engine.checkpoint import read_tensors

KILLS = int(os.environ.get("FEDRECGEL_KILLS", "4"))
SETTINGS = ["--rounds", "40", "--quiet", "--set", "checkpoint.every=3", "--set", "evaluation.selection=test"]


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "fedrecgel", "train", "--out", str(out), *SETTINGS, *more]


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    started = time.monotonic()
    subprocess.run(command(tmp_path / "straight"), check=True)
    duration = time.monotonic() - started

    moments = random.Random(0)
    broken, kills = tmp_path / "broken", 0
    while kills < KILLS:
        process = subprocess.Popen(command(broken, *(["--resume"] if (broken / "config.toml").exists() else [])))
        try:
            process.wait(timeout=moments.uniform(0.2, 0.9) * duration)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        else:
            assert process.returncode == 0
            break  # finished before the next kill: the rest is checked below
    if not (broken / "summary.json").exists():
        subprocess.run(command(broken, "--resume"), check=True)

    for file in ("server.safetensors", "clients.safetensors"):
        straight, _ = read_tensors(tmp_path / "straight" / file)
        resumed, _ = read_tensors(broken / file)
        assert straight.keys() == resumed.keys()
        assert all(torch.equal(straight[name], resumed[name]) for name in straight), file
    assert kills > 0
