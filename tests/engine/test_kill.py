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

from fedrecgel.storage import read_tensors

KILLS = int(os.environ.get("FEDRECGEL_KILLS", "2"))
SETTINGS = ["--rounds", "20", "--quiet", "--set", "checkpoint.every=3", "--set", "evaluation.selection=test"]


def command(out: Path) -> list[str]:
    more = ["--resume"] if (out / "config.toml").exists() else []
    return [sys.executable, "-m", "fedrecgel", "train", "--out", str(out), *SETTINGS, *more]


def same_tensors(first: Path, second: Path) -> bool:
    for file in ("server.safetensors", "clients.safetensors"):
        a, b = (read_tensors(place / file, dict)[0] for place in (first, second))
        if a.keys() != b.keys() or not all(torch.equal(a[name], b[name]) for name in a):
            return False
    return True


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    started = time.monotonic()
    subprocess.run(command(tmp_path / "straight"), check=True)
    duration = time.monotonic() - started

    moments = random.Random(0)
    kills, runs = 0, 0
    while kills < KILLS or runs == 0:
        broken = tmp_path / f"broken-{runs}"
        while not (broken / "summary.json").exists():
            process = subprocess.Popen(command(broken))
            try:
                process.wait(timeout=moments.uniform(0.2, 0.9) * duration if kills < KILLS else None)
                assert process.returncode == 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
        assert same_tensors(tmp_path / "straight", broken), f"run {runs}, after {kills} kills"
        runs += 1
    assert kills == KILLS
    print(f"{kills} kills over {runs} runs")


@pytest.mark.parametrize("variant", ["", "paper"])
def test_another_process_gives_the_same_bits(tmp_path: Path, variant: str) -> None:
    """Nothing may depend on the order of a set, which differs from process to process."""
    more = ["--rounds", "2", "--quiet", *(["--set", f"method.variant={variant}"] if variant else [])]
    for seed in ("1", "2"):
        line = [sys.executable, "-m", "fedrecgel", "train", "--out", str(tmp_path / seed), *more]
        subprocess.run(line, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert same_tensors(tmp_path / "1", tmp_path / "2")
