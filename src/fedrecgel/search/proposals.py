"""What to try next and what to give up: optuna behind two functions of the trials so far.

Nothing is remembered between calls, so a search that was interrupted proposes what it would have proposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import median

import optuna
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from fedrecgel.search.space import Choice, Range, Space, Value
from fedrecgel.search.trials import Trial

SPREAD = 10
"""Trials before the model of the search is asked: the config's own values, then points spread evenly over the space."""
PATIENCE = 5
"""Trials that came as far before any can be given up."""
RUNGS = (0.1, 0.25, 0.5)
"""Shares of the rounds after which the lower half is given up. With fewer rounds to go, less is saved."""
STATES = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}

optuna.logging.set_verbosity(optuna.logging.WARNING)  # optuna announces every study; commands report themselves


def propose(space: Space, own: dict[str, Value], done: Sequence[Trial], number: int, seed: int) -> dict[str, Value]:
    """Values of a trial: first the config's own, then a Sobol sequence, then a tree of Parzen estimators.

    Args:
        space: what may change.
        own: the config's own values.
        done: the trials it may know of.
        number: its number.
        seed: of the search.
    """
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


def hopeless(done: Sequence[Trial], curve: Sequence[tuple[int, float]], rounds: int) -> bool:
    """Whether a trial is in the lower half of all that came so far, at the first evaluation behind a rung.

    Successive halving one trial after another (Li et al., 2020, with half of them kept): what was given up later counts
    among the others, too. The same rule for every method, and it reads validation items only.
    """
    reached = curve[-1][0]
    before = curve[-2][0] if len(curve) > 1 else 0
    if not any(before < rung * rounds <= reached for rung in RUNGS):
        return False
    others = [_best_until(trial.curve, reached) for trial in done if trial.curve and trial.curve[-1][0] >= reached]
    return len(others) >= PATIENCE and _best_until(curve, reached) < median(others)


def _best_until(curve: Sequence[tuple[int, float]], round: int) -> float:
    return max((value for at, value in curve if at <= round), default=-inf)


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
