"""Settings of a run as its config.toml holds them: which may change, when two runs are the same, what to call them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from fedrecgel.errors import RunFolderError
from fedrecgel.methods import method_label
from fedrecgel.storage import UNREADABLE, read_toml

Settings = Mapping[str, Mapping[str, Any]]
"""Sections of a config, as in the TOML file."""

CHANGE_NO_NUMBER = frozenset({("checkpoint", "every"), ("data", "dir"), ("local", "workers"), ("run", "start")})
"""Settings that change no number of a run: the one list. Two runs that differ in nothing else are the same run.

Where the run is that another continues counts for nothing, as `run.start_mark` tells which one it is.
`local.accelerate` and the sizes of chunks are not among them: numbers agree to rounding only.
"""
UNDECIDED = ("local", "accelerate", "auto")
"""A setting that a run decides for itself when it begins."""
FREE_TO_CHANGE = CHANGE_NO_NUMBER | {
    ("run", "rounds"),
    ("evaluation", "full_users"),
    ("flower", "superlink"),
    ("flower", "certificate"),
    ("flower", "wait_seconds"),
    ("flower", "round_seconds"),
    ("flower", "min_answers"),
    ("flower", "repeats"),
    ("flower", "hosts"),
    ("flower", "lost_state"),
}
"""Settings a resumed run may change: they do not alter the rounds already finished."""


LATER: Mapping[tuple[str, str], object] = {("evaluation", "full_users"): 0}
"""Settings that came later, and the value that stands for how it was before: such runs are still the same."""


@dataclass(frozen=True)
class _Method:
    name: str


@dataclass(frozen=True)
class _Run:
    seed: int
    rounds: int


@dataclass(frozen=True)
class _Sections:
    """What every config.toml has, whichever version wrote it."""

    data: dict[str, Any]
    method: _Method
    run: _Run


def settings_fingerprint(settings: Settings, free: Set[tuple[str, str]], *more: object) -> str:
    """SHA-256 of all settings but the free ones, and of what else there is to tell apart.

    `local.accelerate = "auto"` counts as false, the default that it replaced: what it chose is told apart elsewhere.
    """
    kept = {
        section: {
            key: False if (section, key, value) == UNDECIDED else value
            for key, value in values.items()
            if (section, key) not in free and LATER.get((section, key), ...) != value
        }
        for section, values in settings.items()
    }
    content = [kept, *more] if more else kept
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def run_fingerprint(settings: Settings, split: str, *, accelerated: bool = False) -> str:
    """What a checkpoint must match: every setting that shapes a round, the split itself, and the path taken."""
    return settings_fingerprint(settings, FREE_TO_CHANGE, split, accelerated)


def settings_mark(settings: Settings) -> str:
    """What the seal of a run says of config.toml: the same for a file that means the same.

    A class that moved to another file is the same method, and where its file is may be corrected in config.toml.
    """
    method = settings.get("method", {})
    named = {**settings, "method": {**method, "name": method_label(str(method.get("name")))}}
    return settings_fingerprint(named, CHANGE_NO_NUMBER)


def difference(
    ours: Settings, theirs: Settings, free: Set[tuple[str, str]] = FREE_TO_CHANGE
) -> tuple[str, Any, Any] | None:
    """The first setting that is not the same and should be: its key, their value, our value."""
    for section in sorted({*theirs, *ours}):
        mine, other = ours.get(section, {}), theirs.get(section, {})
        for key in sorted({*mine, *other}, key=lambda key: (key != "name", key)):  # the name says most
            undecided = (section, key, mine.get(key)) == UNDECIDED
            if (section, key) not in free and not undecided and mine.get(key) != other.get(key):
                return f"{section}.{key}", other.get(key), mine.get(key)
    return None


def read_settings(path: Path) -> dict[str, dict[str, Any]]:
    """The sections of a config that this package wrote; of their keys only those that tell runs apart are checked.

    Raises:
        RunFolderError: the file is damaged or something else.
    """
    try:
        found = msgspec.convert(read_toml(path), dict[str, dict[str, Any]])
        msgspec.convert(found, _Sections)
    except UNREADABLE as error:
        raise RunFolderError(
            f"'{path}' cannot be read: {error}. Restore it from a copy, or choose another --out."
        ) from error
    return found
