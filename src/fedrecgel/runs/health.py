"""What went wrong with a run that ended as if nothing had: its loss exploded, or it was far better earlier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

EXPLODED = 10.0
"""A loss this many times its lowest value is no noise of sampling."""
LOST = 0.15
"""Share of its best value that a metric may lose before the run says so."""
SURE = 3.0
"""Standard errors of a difference of two hit rates: with few users a smaller fall is chance."""

Line = Mapping[str, Any]
"""One round of metrics.jsonl."""


def health_of(history: Sequence[Line], reported: int, n_users: int, metric: str) -> list[str]:
    """A sentence for each sign that the reported model is not what the run had learnt.

    Args:
        history: all rounds.
        reported: the round whose model is reported.
        n_users: over how many users the metric is a mean.
        metric: a hit rate.
    """
    return [
        *_exploded([line for line in history if line["round"] <= reported]),
        *_fell(history, reported, n_users, metric),
    ]


def _exploded(history: Sequence[Line]) -> list[str]:
    losses = [(line["loss"], line["round"]) for line in history if line["loss"] is not None]
    if not losses:
        return []
    (best, early), (last, late) = min(losses), losses[-1]
    if best <= 0 or last <= EXPLODED * best:  # a loss with negative terms has no scale
        return []
    return [
        f"Training diverged: the loss was {best:.3g} in round {early} and is {last:.3g} in round {late}. Lower a "
        f"learning rate, or end earlier with --rounds."
    ]


def _fell(history: Sequence[Line], reported: int, n_users: int, metric: str) -> list[str]:
    """Measured on validation items where there are any: the advice should not be read off the test items."""
    found = {line["round"]: line.get("validation", line)[metric] for line in history if metric in line}
    if reported not in found:
        return []
    best = max(found, key=lambda number: (found[number], -number))
    before, now = found[best], found[reported]
    chance = SURE * math.sqrt((before * (1 - before) + now * (1 - now)) / n_users)
    if before - now <= max(LOST * before, chance):
        return []
    return [
        f"The reported model is far from the best of this run: {metric} was {100 * before:.2f} in round {best} and is "
        f"{100 * now:.2f} in round {reported}. Train with --set evaluation.selection=validation, or with fewer rounds."
    ]
