"""Do tasks in worker processes: one failing or dying does not stop the others, and Ctrl-C loses no finished round."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Event
from typing import Literal, NamedTuple

import torch

from fedrecgel.errors import FedrecgelError
from fedrecgel.runs.training import Interrupted
from fedrecgel.studies.tasks import Task

Status = Literal["finished", "failed", "interrupted"]


class Outcome(NamedTuple):
    """What became of a task."""

    task: Task
    status: Status
    message: str
    seconds: float


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: Task | None = None
    started: float = 0.0

    def give(self, task: Task) -> None:
        self.task, self.started = task, time.perf_counter()
        self.pipe.send(task)

    def outcome(self) -> Outcome:
        """The answer of the worker; one that died without an answer failed its task."""
        if self.task is None:
            raise RuntimeError("an idle worker has no answer")
        try:
            status, message = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            status, message = "failed", f"its process died (exit code {self.process.exitcode}); out of memory?"
        done = Outcome(self.task, status, message, time.perf_counter() - self.started)
        self.task = None
        return done


def run_tasks(tasks: Sequence[Task], jobs: int, stop: Event | None = None) -> Iterator[Outcome]:
    """Yield the outcomes as they come; after `stop` is set no task is begun and running ones stop after their round.

    Processes are spawned, not forked: a fork of a process whose threads hold locks can hang.
    """
    context = multiprocessing.get_context("spawn")
    stop = stop or context.Event()
    waiting = list(tasks)[::-1]
    workers: list[_Worker] = []
    try:
        while True:
            while waiting and not stop.is_set() and (free := _free_worker(workers, jobs, context, stop)) is not None:
                free.give(waiting.pop())
            busy = [worker for worker in workers if worker.task is not None]
            if not busy:
                return
            for ready in wait([worker.pipe for worker in busy]):
                worker = next(worker for worker in busy if worker.pipe is ready)
                yield worker.outcome()
                if not worker.process.is_alive():
                    workers.remove(worker)
    finally:
        _dismiss(workers)


def _free_worker(workers: list[_Worker], jobs: int, context: SpawnContext, stop: Event) -> _Worker | None:
    idle = next((worker for worker in workers if worker.task is None), None)
    if idle is not None or len(workers) >= jobs:
        return idle
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, stop), daemon=True)
    process.start()
    theirs.close()  # so that a worker that dies ends the pipe
    workers.append(_Worker(process, ours))
    return workers[-1]


def _dismiss(workers: list[_Worker]) -> None:
    for worker in workers:
        if worker.task is None and worker.process.is_alive():
            worker.pipe.send(None)
        else:
            worker.process.terminate()
        worker.process.join()
        worker.pipe.close()


def _work(pipe: Connection, stop: Event) -> None:
    """The loop of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the parent decides
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def should_stop() -> bool:
        """Also when the parent was killed: its successor may train into the same folder."""
        return stop.is_set() or (parent is not None and not parent.is_alive())

    try:
        while (task := pipe.recv()) is not None:
            pipe.send(attempt(task, should_stop))
    except (EOFError, BrokenPipeError):
        return  # nobody is left to tell


def attempt(task: Task, should_stop: Callable[[], bool]) -> tuple[Status, str]:
    """Do a task and say what became of it."""
    try:
        task.run(should_stop)
    except Interrupted as stopped:
        return "interrupted", str(stopped)
    except FedrecgelError as error:
        return "failed", str(error)
    except Exception as error:  # whatever it is, the other runs go on
        return "failed", f"{type(error).__name__}: {error}"
    return "finished", ""


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[Event]:
    """An event that Ctrl-C sets; a second Ctrl-C raises KeyboardInterrupt."""
    event = multiprocessing.get_context("spawn").Event()

    def ask(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()
        say("Finishing the rounds under way; press Ctrl-C again to stop at once …")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
