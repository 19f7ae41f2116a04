"""From (data set, method, setting, seed) to a config: where the hyper-parameters of an experiment come from.

published  the variant `released` of methods that have one; FedRecGEL's radii from `configs/<dataset>.toml`
tuned      `configs/<dataset>/<method>.toml` where it exists, else as `published`
long       half of the clients per round, server rate 5e-3, 200 rounds: long enough to overfit, where the radii matter;
           methods whose server has no rate keep their own way of averaging, references stay as published
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Literal

from fedrecgel.errors import ConfigError, unknown
from fedrecgel.methods import find_method, method_label
from fedrecgel.runs.config import Config, read_config
from fedrecgel.runs.shipped import shown_config

Setting = Literal["published", "tuned", "long"]
SETTINGS: tuple[Setting, ...] = ("published", "tuned", "long")
LONG = {"fraction": (0.5, "half of the clients"), "server_lr": (5e-3, "server rate 0.005")}
"""What hyper-parameters are set to, in a method that has them, and how tables say so."""
LONG_ROUNDS = 200
RELEASED = "released"
"""The variant that published comparisons start from: new defaults do not move them."""

TRIALS = re.compile(r"the best of (\d+) trials")
"""In the heading of a settings file."""

Assignment = tuple[str, str, object]


@dataclass(frozen=True)
class Origin:
    """A config without its seed, and where its settings come from, in words."""

    config: Config
    about: str
    heading: str = ""
    """What the settings file says of itself: how its values were found."""

    @property
    def trials(self) -> int | None:
        """How many trials its values are the best of, as the file says; 0 without a file, None if it does not say."""
        found = TRIALS.search(self.heading)
        return int(found[1]) if found else None if self.heading else 0


@dataclass(frozen=True)
class Presets:
    """The configs of a folder, and what the command line puts on top."""

    folder: Path = Path("configs")
    rounds: int | None = None
    """Of every federated method, if given."""
    data_dir: str | None = None
    overrides: tuple[Assignment, ...] = ()
    """`--set`; a hyper-parameter goes to the methods that have it."""

    def origin(
        self, dataset: str, method: str, setting: Setting, seed: int, changes: Sequence[Assignment] = ()
    ) -> Origin:
        """The config of one run."""
        kind = find_method(method)
        own = {entry.name for entry in fields(kind)}
        tuned, radii = self.folder / dataset / f"{method_label(method)}.toml", self.folder / f"{dataset}.toml"
        path, about = None, "released settings" if RELEASED in kind.variants else "defaults"
        base = about
        if setting == "tuned" and tuned.exists():
            path, about = tuned, shown_config(tuned)
        given: list[Assignment] = [("data", "name", dataset), ("method", "name", method)]
        if path is None and RELEASED in kind.variants:
            given.append(("method", "variant", RELEASED))
        if path is None and (found := _radii(radii, method)):
            given += found
            about = f"{base}, radii of {shown_config(radii)}"
        if self.data_dir is not None:
            given.append(("data", "dir", self.data_dir))
        if setting == "long" and kind.kind == "federated":
            chosen = {key: LONG[key] for key in LONG if key in own}
            given += [("method", key, value) for key, (value, _) in chosen.items()]
            given.append(("run", "rounds", LONG_ROUNDS))
            words = [*(text for _, text in chosen.values()), f"{LONG_ROUNDS} rounds"]
            about = about.replace(base, ", ".join(words))
        if self.rounds is not None and kind().rounds is None:  # else the method knows better
            given.append(("run", "rounds", self.rounds))
            about += f"; {self.rounds} rounds"
        extra = [item for item in self.overrides if item[0] != "method" or item[1] in own]
        given += [*extra, *changes, ("run", "seed", seed)]
        if extra:
            about += "; " + ", ".join(f"{section}.{key}={value}" for section, key, value in extra)
        return Origin(read_config(path, given), about, _heading(path) if path else "")

    def fixes(self, section: str, key: str) -> bool:
        """Whether the command line sets this key for every run."""
        return any((section, key) == assignment[:2] for assignment in self.overrides)

    def check(self, methods: Sequence[str]) -> None:
        """Refuse a hyper-parameter that none of the methods has."""
        known = {entry.name for name in methods for entry in fields(find_method(name))}
        for section, key, _ in self.overrides:
            if section == "method" and key not in known:
                raise ConfigError(unknown("key", key, known, "in [method] of any method of this experiment"))


def _heading(path: Path) -> str:
    """The comment a settings file starts with, as one line."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    return " ".join(line.removeprefix("#").strip() for line in lines)


def _radii(path: Path, method: str) -> list[Assignment]:
    """The radii a data set's config gives this method, and nothing else of it: other settings are the same for all."""
    if not path.exists():
        return []
    section = tomllib.loads(path.read_text(encoding="utf-8")).get("method", {})
    if section.get("name") != method:
        return []
    return [("method", key, section[key]) for key in ("rho_co", "rho_ur") if key in section]
