"""SIGKILL of server and nodes at any moment, then --resume: the same bits as never stopping.

Server's app and nodes live in one process of their own, on the same files as in a deployment.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.builders import random_split
from tests.engine.flower.inprocess import InProcess, config_of, same, served, shards_in

from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.runs.result import open_run

KILLS = int(os.environ.get("FEDRECGEL_KILLS", "1"))
ROUNDS = 20
REPOSITORY = Path(__file__).parents[3]


def train(folder: Path) -> None:
    """What the process does that is killed: begin, or go on."""
    split = random_split(n_users=14, n_items=130)
    selection = {"selection": "test", "every": 1}  # keeps a snapshot of the best round beside the checkpoint
    config = config_of(run={"rounds": ROUNDS}, checkpoint={"every": 3}, evaluation=selection)
    places = sorted(shards_in(folder).glob("node-*"))
    if len(places) < config.flower.nodes:
        places = write_shards(split, shards_in(folder), config.flower.nodes)
    served(config, split, folder, InProcess(places), resume=(folder / "config.toml").exists())


def start(folder: Path) -> subprocess.Popen[bytes]:
    words = f"from pathlib import Path; from tests.engine.flower.test_kill import train; train(Path({str(folder)!r}))"
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", words], cwd=REPOSITORY)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    straight = tmp_path / "straight"
    started = time.monotonic()
    assert start(straight).wait() == 0
    duration = time.monotonic() - started

    moments = random.Random(0)
    kills, runs = 0, 0
    while kills < KILLS:
        broken = tmp_path / f"broken-{runs}"
        while not (broken / "summary.json").exists():
            process = start(broken)
            try:
                assert process.wait(moments.uniform(0.3, 0.95) * duration if kills < KILLS else None) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
        first, second = open_run(straight), open_run(broken)
        same(first.shared, second.shared)
        same(first.clients.of(slice(None)).tensors, second.clients.of(slice(None)).tensors)
        assert first.metrics == second.metrics
        runs += 1
    print(f"{kills} kills over {runs} runs")
