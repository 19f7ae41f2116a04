"""Worker processes: a failing task, a dying process and a stop each concern one task only."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedrecgel.errors import RunError
from fedrecgel.runs.training import Interrupted
from fedrecgel.studies.workers import attempt, run_tasks, stop_on_interrupt


@dataclass(frozen=True)
class Step:
    """Writes a file, or fails."""

    label: str
    out: Path
    act: str = "write"

    def run(self, should_stop: Callable[[], bool]) -> None:
        if self.act == "die":
            os._exit(9)
        if self.act == "raise":
            raise RunError("it diverged")
        if self.act == "stop":
            raise Interrupted(3)
        if self.act == "wait":
            self.out.with_suffix(".begun").touch()
            while not should_stop():
                time.sleep(0.05)
            self.out.write_text("told to stop")
            return
        self.out.write_text(str(should_stop()))


def test_one_failing_and_one_dying_do_not_stop_the_others(tmp_path: Path) -> None:
    acts = ["raise", "die", "write", "write", "stop"]
    tasks = [Step(f"{number}", tmp_path / str(number), act) for number, act in enumerate(acts)]
    outcomes = {outcome.task.label: outcome for outcome in run_tasks(tasks, 2)}
    assert {label: outcome.status for label, outcome in outcomes.items()} == {
        "0": "failed",
        "1": "failed",
        "2": "finished",
        "3": "finished",
        "4": "interrupted",
    }
    assert outcomes["0"].message == "it diverged"
    assert "exit code 9" in outcomes["1"].message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]


def test_nothing_begins_after_a_stop(tmp_path: Path) -> None:
    stop = multiprocessing.get_context("spawn").Event()
    stop.set()
    assert list(run_tasks([Step("a", tmp_path / "a")], 1, stop)) == []
    assert not list(tmp_path.iterdir())


def _parent(out: Path) -> None:
    """A parent whose worker waits to be told to stop."""
    list(run_tasks([Step("wait", out, "wait")], 1))


def test_a_worker_stops_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = multiprocessing.get_context("spawn").Process(target=_parent, args=(tmp_path / "out",))
    parent.start()
    while not (tmp_path / "out.begun").exists():
        time.sleep(0.05)
    parent.kill()
    parent.join()
    for _ in range(400):
        if (tmp_path / "out").exists():
            break
        time.sleep(0.05)
    assert (tmp_path / "out").read_text() == "told to stop"


def test_unexpected_errors_are_named(tmp_path: Path) -> None:
    status, message = attempt(Step("a", tmp_path / "no" / "folder"), lambda: False)
    assert status == "failed"
    assert message.startswith("FileNotFoundError")


def test_ctrl_c_asks_first() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with stop_on_interrupt(said.append) as stop:
        assert not stop.is_set()
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert len(said) == 1
    assert signal.getsignal(signal.SIGINT) is before
