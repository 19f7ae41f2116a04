"""What to try next and what to give up: optuna behind two functions of the trials so far.

Nothing is remembered between calls, so a search that was interrupted proposes what it would have proposed.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from fedrecgel.search.space import Choice, Range, Space, Value
from fedrecgel.search.trials import Trial

SPREAD = 10
"""Trials before the model of the search is asked: the config's own values, then points spread evenly over the space."""
PATIENCE = 5
"""Finished trials before any can be given up."""
STATES = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}

optuna.logging.set_verbosity(optuna.logging.WARNING)  # optuna announces every study; commands report themselves


def propose(space: Space, own: dict[str, Value], done: Sequence[Trial], seed: int) -> dict[str, Value]:
    """Values of the next trial: first the config's own, then a Sobol sequence, then a tree of Parzen estimators."""
    number = len(done)
    if number == 0:
        return own
    if number < SPREAD:
        sobol = torch.quasirandom.SobolEngine(len(space), scramble=True, seed=seed)  # type: ignore[no-untyped-call]
        position = sobol.draw(number, dtype=torch.float64)[-1].tolist()
        return {key: entry.at(at) for (key, entry), at in zip(space.items(), position, strict=True)}
    study = _study(space, done)
    # Its own seed for every trial: a generator that advances would not survive an interruption.
    study.sampler = optuna.samplers.TPESampler(seed=1_000_003 * seed + number, n_startup_trials=1)
    asked = study.ask({key: _distribution(entry) for key, entry in space.items()})
    return {key: entry.tidy(asked.params[key]) for key, entry in space.items()}


def hopeless(space: Space, done: Sequence[Trial], curve: Sequence[tuple[int, float]], rounds: int) -> bool:
    """Whether, from half of the rounds on, the best value so far is below the median of finished trials at this round.

    The same rule for every method.
    """
    rule = optuna.pruners.MedianPruner(n_startup_trials=PATIENCE, n_warmup_steps=rounds // 2)
    running = create_trial(state=TrialState.RUNNING, intermediate_values=dict(curve))
    return bool(rule.prune(_study(space, done), running))


def _study(space: Space, done: Sequence[Trial]) -> optuna.Study:
    """The trials so far as optuna sees them; the config's own values may lie outside the space."""
    study = optuna.create_study(direction="maximize")
    for trial in done:
        inside = {key: value for key, value in trial.parameters.items() if value in space[key]}
        if inside.keys() == space.keys():
            study.add_trial(_told(trial, space))
    return study


def _told(trial: Trial, space: Space) -> FrozenTrial:
    return create_trial(
        state=STATES[trial.state],
        value=trial.score if trial.state == "finished" else None,
        params={**trial.parameters},
        distributions={key: _distribution(entry) for key, entry in space.items()},
        intermediate_values=dict(trial.curve),
    )


def _distribution(entry: Range | Choice) -> BaseDistribution:
    if isinstance(entry, Choice):
        return CategoricalDistribution(entry.values)
    if entry.whole:
        return IntDistribution(int(entry.low), int(entry.high), log=entry.log)
    return FloatDistribution(entry.low, entry.high, log=entry.log)
