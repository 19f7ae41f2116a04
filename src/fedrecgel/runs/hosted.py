"""Recommendations on a node, for the users it hosts: their histories and private parts never leave it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from fedrecgel.draws import Draws
from fedrecgel.engine.flower.disk import DiskStore
from fedrecgel.engine.flower.secret import FILE, own_secret
from fedrecgel.engine.flower.shard import Shard
from fedrecgel.errors import ConfigError, RunFolderError, unknown
from fedrecgel.methods.messages import Problem, Server
from fedrecgel.runs.flower import NAME, name_on_nodes
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.recommend import Audience, Recommendation, name_best
from fedrecgel.runs.result import open_run
from fedrecgel.runs.settings import FREE_TO_CHANGE, settings_fingerprint


def recommend_hosted(
    folder: Path, shard: Shard, user: str | None, k: int
) -> Iterator[tuple[int | str, list[Recommendation]]]:
    """The k best items of one hosted user, or of all of them.

    Args:
        folder: the run, copied from the server with its `checkpoint`: the shared model and the run's name.
        shard: the node's users, with what they learnt in this run.
        user: whom; None for all.
        k: how many.

    Raises:
        ConfigError: the user is not hosted here, or k is not positive.
        RunFolderError: the run is of other data, or does not say its name on nodes.
    """
    result, names = open_run(folder), [str(name) for name in shard.user_ids]
    if user is not None and user not in names:
        raise ConfigError(unknown("user", user, names, "on this node"))
    if result.summary["protocol"]["fingerprint"] != shard.facts["fingerprint"]:
        raise RunFolderError(f"'{folder}' should be a run on the data of this shard. Its data are others.")
    place = RunFolder(folder).checkpoint.parent / NAME
    if not place.is_file():
        raise RunFolderError(f"'{folder}' should have the run's name on nodes in {place}. Copy the folder whole.")
    config, ids = result.config, shard.users
    method, fingerprint = config.method.build(), settings_fingerprint(config.to_dict(), FREE_TO_CHANGE)
    secret = own_secret(shard.state, fingerprint) if (shard.state / FILE).exists() else b""
    problem = Problem(shard.split.n_users, shard.split.n_items, getattr(torch, config.run.dtype))
    state = shard.state / name_on_nodes(place.read_text(encoding="ascii"), config)
    rounds = int(result.summary["protocol"]["selected_round"])
    store = DiskStore(state, method, problem, Draws(config.run.seed, secret), rounds=rounds)
    hosted = ids.numpy()
    audience = Audience(
        method,
        method.broadcast(Server(result.shared), ids),
        store.read(ids),
        shard.split.train.of(hosted),
        shard.split.observed.of(hosted),
    )
    for number, name in enumerate(shard.user_ids):
        if user in (None, str(name)):
            yield name, name_best(result, audience, number, k)
