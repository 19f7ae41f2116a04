"""Small data, splits and engines for tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch

from fedrecgel.channels.base import Channel, Plain
from fedrecgel.data.federation import Federation, SamplingSettings
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.split import Split, leave_one_out
from fedrecgel.draws import Draws
from fedrecgel.engine.gate import GateSettings
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.engine.store import ClientStore
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Problem

TINY: dict[str, Any] = {"gmf_dim": 4, "mlp_dim": 6, "fraction": 0.5}
"""Hyper-parameters of a model that trains in milliseconds."""


def tiny(name: str) -> dict[str, Any]:
    """Hyper-parameters of a small model of any method."""
    kind = METHODS[name]
    known = {entry.name for entry in fields(kind)}
    small = {**TINY, "dim": 4} if kind.kind == "federated" else {}
    return {key: value for key, value in small.items() if key in known}


def enough_rounds(name: str, at_least: int) -> int:
    """So many rounds for such a model, or as many as its method states."""
    return max(at_least, METHODS[name](**tiny(name)).rounds or 0)


def interactions_of(
    rows: list[tuple[int, int, int]], n_items: int, *, timed: bool = True, min_interactions: int = 2
) -> Interactions:
    """Rows of (user, item, time); the catalogue may be larger than what occurs."""
    users, items, times = np.array(rows, dtype=np.int64).T
    return Interactions(
        name="tiny",
        users=users.astype(np.int32),
        items=items.astype(np.int32),
        times=times if timed else None,
        user_ids=[f"u{number}" for number in range(int(users.max()) + 1)],
        item_ids=[100 + number for number in range(n_items)],
        min_interactions=min_interactions,
    )


def random_interactions(
    n_users: int = 12, n_items: int = 150, *, seed: int = 0, timed: bool = True, longest: int = 20
) -> Interactions:
    """Between 5 and `longest` rows per user, in random order, with repeated pairs and equal times."""
    generator = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        length = int(generator.integers(5, longest + 1))
        items, times = generator.integers(0, n_items, length), generator.integers(0, 8, length)
        items[-1] = items[0]  # a repeated pair
        rows += [(user, int(item), int(time)) for item, time in zip(items, times, strict=True)]
    generator.shuffle(rows)
    return interactions_of(rows, n_items, timed=timed, min_interactions=5)


def random_split(n_users: int = 12, n_items: int = 150, *, seed: int = 0, **settings: Any) -> Split:
    """Leave-one-out on `random_interactions`."""
    return leave_one_out(random_interactions(n_users, n_items, seed=seed), **settings)


def engine_of(
    method: Method,
    split: Split,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    local: LocalSettings | None = None,
    sampling: SamplingSettings | None = None,
    channel: Channel | None = None,
    gate: GateSettings | None = None,
) -> LocalEngine:
    """A local engine, over a plain channel unless another is given."""
    draws = Draws(seed)
    store = ClientStore(method, problem_of(split, dtype), draws)
    federation = Federation(split, sampling or SamplingSettings(), dtype)
    return LocalEngine(method, federation, channel or Plain(), store, draws, local, gate)


def problem_of(split: Split, dtype: torch.dtype = torch.float64) -> Problem:
    """The sizes of a split."""
    return Problem(split.n_users, split.n_items, dtype)
