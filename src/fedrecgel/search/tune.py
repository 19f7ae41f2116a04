"""Tune: try values of a space on the validation items, one trial after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import ModuleType

from fedrecgel.data.split import Split
from fedrecgel.errors import ConfigError, FedrecgelError, RunError, RunFolderError
from fedrecgel.evaluation.metrics import is_metric
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
    watch: Watch = lambda number, line: None,
) -> Iterator[Trial]:
    """Run the trials that are not recorded yet, and yield each when it is on record.

    Args:
        config: what to train; trial 0 is the config itself.
        space: what may change.
        split: the data, with validation items.
        folder: where trials are recorded; best.toml there is the best so far.
        trials: how many there should be in the end.
        watch: called after every round.

    Raises:
        ConfigError: optuna is not installed, or the split has no validation items.
        RunFolderError: the folder holds something else, another search or other data.
        RunError: every trial failed.
    """
    proposals, config = _proposals(), for_search(config)
    check_device(config)
    data, commit = split.fingerprint, source_commit()
    with folder.open(config, space) as done:
        if any(trial.split != data for trial in done):
            raise RunFolderError(f"'{folder.path}' holds this search on other data. Choose another --out.")
        _write_best(folder, config, done)  # a crash may have come between a trial and its best.toml
        while len(done) < trials:
            values = proposals.propose(space, own_values(config, space), done, config.run.seed)
            trial = Trial(number=len(done), parameters=values, state="failed", split=data, commit=commit)
            rule = partial(proposals.hopeless, space, done, rounds=config.run.rounds)
            done.append(_run(trial, config, without_test(split), partial(watch, trial.number), rule))
            folder.append(done[-1])
            _write_best(folder, config, done)
            yield done[-1]
        if done and best_of(done) is None:
            raise RunError(f"All {len(done)} trials failed. The last one: {done[-1].reason}")


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
    Training(replace(config, evaluation=measured), blind, None).fit(watch, lambda: False)


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
