"""Small runs to attack."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.builders import interactions_of

from fedrecgel.audit.scene import Scene
from fedrecgel.data.split import Split, leave_one_out
from fedrecgel.runs.config import from_dict


def popular_split(n_users: int = 60, n_items: int = 200, seed: int = 0) -> Split:
    """Few popular items and many rare ones."""
    generator = np.random.default_rng(seed)
    chance = 1 / (np.arange(n_items) + 5.0)
    rows = []
    for user in range(n_users):
        items = generator.choice(n_items, int(generator.integers(6, 14)), replace=False, p=chance / chance.sum())
        rows += [(user, int(item), time) for time, item in enumerate(items)]
    return leave_one_out(interactions_of(rows, n_items, min_interactions=5), candidates=50)


SPLIT = popular_split()
SMALL: dict[str, dict[str, Any]] = {
    "fedrecgel": {"gmf_dim": 8, "mlp_dim": 16},
    "fedmf": {"dim": 8},
    "spectra": {"rank": 60, "dim": 4},
}


def scene_of(method: str, channel: str = "plain", split: Split = SPLIT, **sections: Any) -> Scene:
    options = {**SMALL.get(method, {}), **sections.pop("options", {})}
    run = {"channel": channel, **sections.pop("run", {})}
    data = {"name": "tiny", "min_interactions": 5}
    return Scene(from_dict({"data": data, "run": run, "method": {"name": method, **options}, **sections}), split)
