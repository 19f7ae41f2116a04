"""Tune: try values of a space on the validation items, one trial after another or some at a time."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.synchronize import Event
from types import ModuleType

import torch

from fedrecgel.data.split import Split
from fedrecgel.engine.workers import available_cores
from fedrecgel.errors import ConfigError, FedrecgelError, RunError, RunFolderError
from fedrecgel.evaluation.metrics import is_metric
from fedrecgel.runs.acceleration import settle
from fedrecgel.runs.config import Config, MethodSettings, check_device
from fedrecgel.runs.summary import source_commit
from fedrecgel.runs.training import Line, Training
from fedrecgel.search.space import Space, own_values, with_values
from fedrecgel.search.trials import Curve, SearchFolder, State, Trial, best_of
from fedrecgel.storage import write_text

Watch = Callable[[int, Line], None]
"""Called with the number of the trial and each of its rounds."""
REFUSALS = (FedrecgelError, ArithmeticError, ValueError, RuntimeError, MemoryError)
"""How a bad set of values shows: the others still get their turn. Anything else is a mistake in the code."""


class _HopelessError(Exception):
    """The trial is given up."""


def searched_metric(config: Config) -> str:
    """What a search maximises: NDCG at the largest K, on the validation item."""
    return f"NDCG@{max(config.evaluation.ks)}"


def for_search(config: Config) -> Config:
    """The config with the validation item held out, as the search and what is trained with its result need it."""
    return with_values(config, {"evaluation.selection": "validation"})


def without_test(split: Split) -> Split:
    """What a trial sees of a split: the validation item is in the place of the test item, which is gone."""
    if split.validation is None or split.validation_candidates is None:
        raise ConfigError("A search needs validation items. Make the split with validation=True.")
    return replace(
        split,
        test=split.validation,
        candidates=split.validation_candidates,
        validation=None,
        validation_candidates=None,
        test_ptr=split.validation_ptr,
        validation_ptr=None,
    )


def search(
    config: Config,
    space: Space,
    split: Split,
    folder: SearchFolder,
    *,
    trials: int,
    jobs: int = 1,
    watch: Watch = lambda number, line: None,
) -> Iterator[Trial]:
    """Run the trials that are not recorded yet, and yield each, in the order of their numbers, when it is on record.

    With several jobs, trial n knows of trials 0 … n - jobs, whoever else has finished by then: the same command finds
    the same, on any machine and after any interruption.

    Args:
        config: what to train; trial 0 is the config itself.
        space: what may change.
        split: the data, with validation items.
        folder: where trials are recorded; best.toml there is the best so far.
        trials: how many there should be in the end.
        jobs: how many run at the same time, each in a process of its own where they are several.
        watch: called after every round, where there is one job.

    Raises:
        ConfigError: optuna is not installed, or the split has no validation items.
        RunFolderError: the folder holds something else, another search or other data.
        RunError: every trial failed, or a process died.
    """
    proposals, config = _proposals(), for_search(config)
    check_device(config)
    data, commit, blind = split.fingerprint, source_commit(), without_test(split)
    with folder.open(config, space) as done, _pool(config, blind, jobs, watch) as begin:
        if any(trial.split != data for trial in done):
            raise RunFolderError(f"'{folder.path}' holds this search on other data. Choose another --out.")
        _write_best(folder, config, done)  # a crash may have come between a trial and its best.toml
        running: deque[Callable[[], Trial]] = deque()
        while len(done) < trials:
            while len(running) < min(jobs, trials - len(done)):
                number = len(done) + len(running)
                known = done[: max(0, number - jobs + 1)]
                values = proposals.propose(space, own_values(config, space), known, number, config.run.seed)
                new = Trial(number=number, parameters=values, state="failed", split=data, commit=commit, jobs=jobs)
                running.append(begin(new, partial(proposals.hopeless, known, rounds=config.run.rounds)))
            done.append(running.popleft()())
            folder.append(done[-1])
            _write_best(folder, config, done)
            yield done[-1]
        if done and best_of(done) is None:
            raise RunError(f"All {len(done)} trials failed. The last one: {done[-1].reason}")


Begin = Callable[[Trial, Callable[[Curve], bool]], Callable[[], Trial]]
"""Starts a trial that is given up by a rule; returns a function that waits for what came of it."""


@contextmanager
def _pool(config: Config, blind: Split, jobs: int, watch: Watch) -> Iterator[Begin]:
    """Trials here, one after another, or each in one of some processes, which get the data once."""
    if jobs == 1:
        yield lambda trial, rule: partial(_run, trial, config, blind, partial(watch, trial.number), rule)
        return
    context = multiprocessing.get_context("spawn")  # a fork of a process whose threads hold locks can hang
    stop = context.Event()
    share = replace(config, local=replace(config.local, workers=max(1, available_cores() // jobs)))
    with ProcessPoolExecutor(jobs, context, _work, (share, blind, stop)) as processes:
        try:
            yield lambda trial, rule: partial(_answer, processes.submit(_run_here, trial, rule))
        finally:
            stop.set()
            processes.shutdown(cancel_futures=True)


def _answer(coming: Future[Trial]) -> Trial:
    try:
        return coming.result()
    except BrokenProcessPool as error:
        raise RunError(
            "A process of the search died; out of memory? Give the same command with fewer --jobs."
        ) from error


_given: tuple[Config, Split, Event]
"""What a process of a search was given at its start."""


def _work(config: Config, blind: Split, stop: Event) -> None:
    global _given
    _given = config, blind, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the parent decides
    torch.set_num_threads(1)


def _run_here(trial: Trial, rule: Callable[[Curve], bool]) -> Trial:
    config, blind, stop = _given

    def watch(line: Line) -> None:
        if stop.is_set():
            raise _HopelessError  # nobody waits for it

    return _run(trial, config, blind, watch, rule)


def _run(
    trial: Trial, config: Config, blind: Split, watch: Callable[[Line], None], hopeless: Callable[[Curve], bool]
) -> Trial:
    """Train with the values of a trial, in memory, and fill in what came of it."""
    metric, last, evaluated = searched_metric(config), config.run.rounds, list[Line]()

    def record(line: Line) -> None:
        watch(line)
        if metric in line:
            evaluated.append(line)
            if line["round"] < last and hopeless(_curve(evaluated, metric)):
                raise _HopelessError

    started, reason = time.perf_counter(), None
    state: State = "finished"
    try:
        _train(with_values(config, trial.parameters), blind, record)
    except _HopelessError:
        state = "stopped"
    except REFUSALS as error:
        kind = "" if isinstance(error, FedrecgelError) else f"{type(error).__name__}: "
        state, reason = "failed", f"{kind}{error}"
    seconds = time.perf_counter() - started
    if state == "failed":
        return replace(trial, curve=_curve(evaluated, metric), seconds=seconds, reason=reason)
    if not evaluated:
        return replace(trial, seconds=seconds, reason="it was stopped before its first evaluation")
    best = max(evaluated, key=lambda line: (line[metric], -line["round"]))
    return replace(
        trial,
        state=state,
        validation={name: value for name, value in best.items() if is_metric(name)},
        best_round=best["round"],
        curve=_curve(evaluated, metric),
        seconds=seconds,
    )


def popularity(config: Config, split: Split) -> dict[str, float]:
    """Popularity's metrics on the validation items."""
    lines: list[Line] = []
    once = replace(config, method=MethodSettings("popularity"), run=replace(config.run, rounds=1))
    _train(once, without_test(split), lines.append)
    return {name: value for name, value in lines[-1].items() if is_metric(name)}


def _train(config: Config, blind: Split, watch: Callable[[Line], None]) -> None:
    """What a split without test items calls its test item is the validation item, so nothing is left to select by."""
    measured = replace(config.evaluation, selection="last", full=False)
    Training(settle(replace(config, evaluation=measured), blind), blind, None).fit(watch, lambda: False)


def _curve(evaluated: list[Line], metric: str) -> Curve:
    return [(line["round"], line[metric]) for line in evaluated]


def _write_best(folder: SearchFolder, config: Config, done: list[Trial]) -> None:
    best = best_of(done)
    if best is not None:
        write_text(folder.best, with_values(config, best.parameters).to_toml())


def _proposals() -> ModuleType:
    """The module that needs optuna, which is installed only for searching."""
    try:
        from fedrecgel.search import proposals
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise ConfigError(
            "fedrecgel tune needs optuna, which is not installed. "
            'Install it with: pip install -c constraints.txt -e ".[tune]"'
        ) from error
    return proposals
