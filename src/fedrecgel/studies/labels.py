"""Names that tell configurations apart: the method, and the settings in which those of one method differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from fedrecgel.methods import method_label
from fedrecgel.runs.settings import CHANGE_NO_NUMBER, Settings

SEEDS = frozenset({("run", "seed"), ("split", "seed")})
"""What tells the runs of one configuration apart: tables may give every seed a split of its own."""
ORDER = ("method", "run", "sampling", "evaluation")
"""Sections whose settings name a difference before those of others do."""
UNNAMED = CHANGE_NO_NUMBER | SEEDS | {("method", "name"), ("data", "name"), ("run", "start_mark")}
Value = tuple[tuple[str, str], Any]


def labels_of(configurations: Sequence[Settings], accelerated: Sequence[bool] = ()) -> list[str]:
    """A name for each configuration: as few settings as tell those of the same method apart.

    >>> one, other = ({"method": {"name": "fedmf", "lr": lr, "dim": 8}} for lr in (0.1, 0.5))
    >>> labels_of([one, other])
    ['fedmf, lr 0.1', 'fedmf, lr 0.5']
    """
    paths = list(accelerated) or [False] * len(configurations)
    names = [method_label(str(settings["method"]["name"])) for settings in configurations]
    told = [_settings(settings, path) for settings, path in zip(configurations, paths, strict=True)]
    found = []
    for place, name in enumerate(names):
        rivals = [told[other] for other in range(len(names)) if names[other] == name]
        keys = _telling(rivals)
        found.append(", ".join([name, *(_written(key, told[place].get(key)) for key in keys)]))
    return found


def _settings(settings: Settings, accelerated: bool) -> dict[tuple[str, str], Any]:
    found = {
        (section, key): value
        for section, values in settings.items()
        for key, value in values.items()
        if (section, key) not in UNNAMED
    }
    return found | {("local", "accelerate"): "accelerated" if accelerated else "plain path"}


def _telling(rivals: Sequence[Mapping[tuple[str, str], Any]]) -> list[tuple[str, str]]:
    """The fewest settings that tell all of these apart, as far as settings do; of equally few the foremost."""
    keys = [key for key in _in_order(rivals) if len({repr(one.get(key)) for one in rivals}) > 1]
    for count in range(min(3, len(keys)) + 1):
        for chosen in combinations(keys, count):
            if len({repr([one.get(key) for key in chosen]) for one in rivals}) == len(rivals):
                return list(chosen)
    return keys


def _in_order(rivals: Sequence[Mapping[tuple[str, str], Any]]) -> list[tuple[str, str]]:
    keys = dict.fromkeys(key for one in rivals for key in one)
    return sorted(keys, key=lambda key: ORDER.index(key[0]) if key[0] in ORDER else len(ORDER))


def _written(key: tuple[str, str], value: object) -> str:
    section, name = key
    if key == ("run", "rounds"):
        return f"{value} rounds"
    if key == ("local", "accelerate"):
        return str(value)
    if key in {("run", "channel"), ("run", "engine"), ("method", "variant")}:
        return f"{name} {value or 'none'}"
    shown = f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value).lower()
    return f"{name if section == 'method' else f'{section}.{name}'} {shown}"
