"""The space of a search: which settings may change, and between which values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from fedrecgel.errors import ConfigError, unknown
from fedrecgel.methods import find_method
from fedrecgel.runs.config import Config, build, from_dict, read_sections, with_assignments

Value = float | int | str | bool
"""What one setting can be."""

COMMON: Mapping[str, object] = {"method.fraction": [0.1, 0.5, 1.0]}
"""Searched for every federated method: the choices that decide a comparison are the same for all, and participation
moves results by more than most methods do. A centralised method has all histories by definition."""
OUTSIDE_METHOD = ("sampling.negatives",)
"""Settings a search may change besides hyper-parameters; all others change what is measured."""
EXAMPLE = '"method.server_lr" = {low = 1e-4, high = 1e-1, log = true}'
DIGITS = 4
"""Significant digits of a number that is tried: finer ones change nothing and are hard to read."""


@dataclass(frozen=True)
class Range:
    """All numbers between two bounds, both included; whole numbers when both bounds are."""

    low: int | float
    high: int | float
    log: bool = False
    """Spread over orders of magnitude."""

    @property
    def whole(self) -> bool:
        """Whether only integers belong to it."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, position: float) -> Value:
        """The value at a position from 0 to 1."""
        low, high = float(self.low), float(self.high)
        if self.whole:
            low, high = low - 0.5, high + 0.5  # every integer gets an equal share
        value = low * (high / low) ** position if self.log else low + position * (high - low)
        return self.tidy(value)

    def tidy(self, value: float) -> Value:
        """The nearest value of the range with few digits."""
        near = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        return min(max(near, self.low), self.high)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int if self.whole else (int, float)) and self.low <= cast(float, value) <= self.high

    def edges(self) -> tuple[Value, ...]:
        """Values that must be valid settings for all others to be."""
        return (self.low, self.high)

    def written(self) -> dict[str, Value]:
        """As in a config file."""
        return asdict(self)


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Value, ...]

    def at(self, position: float) -> Value:
        """The value at a position from 0 to 1."""
        return self.values[min(int(position * len(self.values)), len(self.values) - 1)]

    def tidy(self, value: Value) -> Value:
        """A choice stays as it is."""
        return value

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def edges(self) -> tuple[Value, ...]:
        """Every value must be a valid setting."""
        return self.values

    def written(self) -> list[Value]:
        """As in a config file."""
        return list(self.values)


Space = Mapping[str, Range | Choice]
"""What may change, by `section.key`."""


def read_search(path: Path | None, assignments: Sequence[tuple[str, str, object]] = ()) -> tuple[Config, Space]:
    """A config file, overrides, and its table [search], or the method's default space if it has none.

    Raises:
        ConfigError: the file is no config, or a key or a bound of the space is wrong.
    """
    sections = read_sections(path) if path is not None else {}
    table = sections.pop("search", None)
    config = from_dict(with_assignments(sections, assignments))
    if table is None:
        table = default_space(config.method.name)
    if not isinstance(table, Mapping) or not table:
        raise ConfigError(f"[search] should say what to try, for example {EXAMPLE}. Found {table!r}.")
    return config, read_space(table, config)


def default_space(method: str) -> Mapping[str, object]:
    """The space a method's class names, as it would stand in [search]."""
    kind = find_method(method)
    own, common = kind.search, COMMON if kind.kind == "federated" else {}
    if not own:
        raise ConfigError(f"There is no default space for '{method}'. Add a table [search], for example {EXAMPLE}.")
    return {**common, **{key if "." in key else f"method.{key}": values for key, values in own.items()}}


def read_space(table: Mapping[str, object], config: Config) -> Space:
    """A checked space; every bound and every choice must be a setting the config takes."""
    space = {key: _read_entry(key, value) for key, value in _flat(table)}
    for key, entry in space.items():
        section, _, name = key.partition(".")
        if section != "method" and key not in OUTSIDE_METHOD:
            valid = [f"method.{known}" for known in config.to_dict()["method"] if known not in ("name", "variant")]
            raise ConfigError(
                f"{unknown('key', key, [*valid, *OUTSIDE_METHOD], 'in [search]')} "
                f"A search changes hyper-parameters and {', '.join(OUTSIDE_METHOD)}, nothing that is measured with."
            )
        if name in ("name", "variant"):
            raise ConfigError(f"[search] cannot change {key}: search one method at a time, and compare afterwards.")
        for value in entry.edges():
            try:
                with_values(config, {key: value})
            except ConfigError as error:
                raise ConfigError(f"In [search]: {error}") from error
    return space


def _flat(table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """`"method.lr" = …` and `method.lr = …` mean the same to people, but not to TOML."""
    for key, value in table.items():
        if "." not in key and isinstance(value, Mapping) and not {"low", "high"} & value.keys():
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def _read_entry(key: str, value: object) -> Range | Choice:
    if isinstance(value, (list, tuple)):
        if not value or any(not isinstance(one, Value) for one in value) or len(set(value)) < len(value):
            raise ConfigError(f"[search] {key} should list different values to choose from. Found {value!r}.")
        return Choice(tuple(value))
    if not isinstance(value, Mapping):
        raise ConfigError(f"[search] {key} should be a list of values or a range, as in {EXAMPLE}. Found {value!r}.")
    if missing := {"low", "high"} - value.keys():
        raise ConfigError(f"[search] {key} should have low and high, as in {EXAMPLE}. It has no {min(missing)}.")
    found = build(Range, value, f"search.{key}")
    if not (math.isfinite(found.low) and math.isfinite(found.high) and found.low < found.high):
        raise ConfigError(f"[search] {key} should have low < high. Found low = {found.low} and high = {found.high}.")
    if found.log and found.low <= 0:
        raise ConfigError(f"[search] {key} with log = true needs low > 0. Found {found.low}.")
    return found


def with_values(config: Config, values: Mapping[str, Value]) -> Config:
    """The config with these settings, by `section.key`; rounds that the method states are those of the new settings."""
    settings = config.to_dict()
    if config.run.rounds == config.method.build().rounds:
        del settings["run"]["rounds"]
    for path, value in values.items():
        section, _, key = path.partition(".")
        settings[section][key] = value
    return from_dict(settings)


def own_values(config: Config, space: Space) -> dict[str, Value]:
    """What the config itself has for what the space changes; a setting without a value is left out."""
    settings = {f"{section}.{key}": v for section, values in config.to_dict().items() for key, v in values.items()}
    return {path: settings[path] for path in space if path in settings}
