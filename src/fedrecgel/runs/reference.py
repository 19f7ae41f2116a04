"""The popularity row beside a run: whether it is measured, and what that sends."""

from __future__ import annotations

from fedrecgel.channels.base import Plain
from fedrecgel.methods.popularity import Popularity
from fedrecgel.runs.config import Config

WITHHELD = (
    "The popularity row is withheld, because measuring it sends how often each item occurs in every user's history. "
    "Ask for it with --set evaluation.reference=on."
)


def has_reference(config: Config) -> bool:
    """Whether popularity is measured beside the run."""
    return config.evaluation.reference == "on" or (config.evaluation.reference == "auto" and not _protected(config))


def reference_sends(config: Config) -> frozenset[str]:
    """What leaves a device for that row alone, or would where a simulator stands for the devices.

    Of a simulation that protects nothing the row says nothing: a deployment of the same settings has none.
    """
    return Popularity.sends if has_reference(config) and _protected(config) else frozenset()


def _protected(config: Config) -> bool:
    """Whether users elsewhere, or behind a channel, may rely on what the method alone sends."""
    return config.run.engine != "local" or config.run.channel != Plain.name
