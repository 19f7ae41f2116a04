"""How many of a run's rounds its channel allows, and which limits its first rounds."""

from __future__ import annotations

from functools import partial

from fedrecgel.channels.base import Channel, Plan
from fedrecgel.engine.gate import GateSettings
from fedrecgel.errors import ConfigError
from fedrecgel.methods import method_label, spectral_start
from fedrecgel.methods.base import Method
from fedrecgel.runs.config import Config
from fedrecgel.tensors import Tensors

LIMITS = "Limits of uploads (gate.row_limit, gate.row_limits, gate.client_limit)"
"""What errors call them."""


def allowed_rounds(config: Config, method: Method, channel: Channel, n_clients: int) -> int:
    """The rounds asked for, or as many of them as the channel's promise allows.

    Raises:
        ConfigError: the method needs more.
    """
    run, names = config.run, method.leaves_device()
    on_nodes = run.engine != "local"
    measured = partial(measurements, config) if on_nodes else lambda rounds: 0
    plan = Plan(n_clients, method.fraction, run.rounds, names, run.seed, on_nodes=on_nodes, measured=measured)
    allowed, needed = channel.begin(plan), method.rounds
    if needed is not None and allowed < needed:
        raise ConfigError(
            f"Method '{method_label(config.method.name)}' needs {needed} rounds at these settings, but the budget of "
            f"channel '{channel.name}' allows {allowed}. Raise it, or the noise."
        )
    return allowed


def check_limits(gate: GateSettings, method: Method, shared: Tensors) -> None:
    """Refuse limits where they would cut sums that a run is made of.

    Raises:
        ConfigError: there are limits, and a method that adds up what clients have, or a spectral start.
    """
    if not gate.shortens:
        return
    if method.rounds is not None:
        raise ConfigError(
            f"{LIMITS} are for methods that learn from round to round. {type(method).__name__} adds up what clients "
            f"have, and would add up something else. Leave them out."
        )
    if spectral_start.begins(shared):
        raise ConfigError(
            f"{LIMITS} should fit gradients. They would cut the counts that a spectral start adds up. Set "
            f"method.init = 'normal', or leave them out."
        )


def measurements(config: Config, rounds: int) -> int:
    """How many times all clients are ranked up to the end of so many rounds, at most."""
    if config.run.final:
        return 0
    settings = config.evaluation
    due = -(-rounds // settings.every) * (1 + config.split.validation)
    return due + settings.full + (settings.selection != "last")
