"""When a recorded run is a planned one, also if an earlier version of the package recorded it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedrecgel.errors import ConfigError
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.settings import CHANGE_NO_NUMBER, Settings, settings_fingerprint
from fedrecgel.studies.presets import RELEASED


def config_fingerprint(config: Config) -> str:
    """SHA-256 of every setting that can change a number."""
    return settings_fingerprint(config.to_dict(), CHANGE_NO_NUMBER)


def complete_settings(settings: Settings) -> dict[str, dict[str, Any]] | None:
    """The settings of a recorded run with those that came later; None where this version cannot know.

    A setting that the version of the record did not have gets the value that stands for how it was before: that of the
    variant `released`, which new settings never move, else the default. Methods in files are not looked at, since
    reading a record must not run code.
    """
    try:
        return from_dict({**settings, "method": _with_later_settings(settings["method"])}).to_dict()
    except (ConfigError, KeyError, TypeError):
        return None


def recorded_fingerprint(settings: Settings) -> str | None:
    """The fingerprint that a run of these settings has now; None where this version cannot know."""
    complete = complete_settings(settings)
    return None if complete is None else settings_fingerprint(complete, CHANGE_NO_NUMBER)


def _with_later_settings(method: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters with those that came later; a record without one whose default is None may have had it."""
    kind = METHODS[method["name"]]
    before = kind.variants.get(RELEASED, {})
    later = {entry.name for entry in fields(kind) if entry.default is not None} & before.keys()
    return {name: before[name] for name in later} | dict(method)
