"""A node's policy file, and a policy that allows one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedrecgel.channels.secagg import Secagg, SecaggSettings
from fedrecgel.engine.flower.peers import public_key
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.errors import ConfigError, unknown
from fedrecgel.runs.config import Config, build, from_dict, read_sections
from fedrecgel.runs.reference import has_reference
from fedrecgel.runs.settings import FREE_TO_CHANGE, settings_fingerprint


def read_policy(place: str) -> Policy:
    """The policy in a TOML file; the default if there is none.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    sections = read_sections(Path(place)) if place else {}
    for section, values in sections.items():
        if section not in ("policy", "peers"):
            raise ConfigError(unknown("section", section, ["policy", "peers"], f"in '{place}'"))
        if not isinstance(values, Mapping):
            raise ConfigError(f"[{section}] should be a table of settings. Found {values!r}.")
    if "peers" in sections.get("policy", {}):
        raise ConfigError(f"Other nodes belong into a section [peers] of '{place}', not into [policy].")
    policy = build(Policy, {**sections.get("policy", {}), "peers": sections.get("peers", {})}, "policy")
    for line in policy.peers.values():
        public_key(line)
    return policy


def policy_for(config: Config) -> Policy:
    """Allows this run, the reference beside it if it is asked for, and no other."""
    reference = from_dict({**config.to_dict(), "method": {"name": "popularity"}})
    pair = (config, reference) if has_reference(config) else (config,)
    own = config.channels.get(Secagg.section)
    return Policy(
        methods=tuple(dict.fromkeys(one.method.name for one in pair)),
        channels=(config.run.channel,),
        runs=tuple(dict.fromkeys(settings_fingerprint(one.to_dict(), FREE_TO_CHANGE) for one in pair)),
        min_sum=(own.min_clients or 0) if isinstance(own, SecaggSettings) else 0,
    )
