"""Finished runs with ranks made by hand, for tests of tables and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.runs.ranks_file import RankFile, write_ranks
from fedrecgel.studies.cells import RowPlan
from fedrecgel.studies.fingerprints import config_fingerprint
from fedrecgel.studies.records import Record

N_USERS = 400


def lay_out(
    root: Path, plans: Iterable[RowPlan], hits: Mapping[str, float], test: str = "t", *, reference: bool = True
) -> dict[str, Record]:
    """Run folders of rows whose users are hit with these probabilities, each row and seed with its own luck.

    `test` names who is tested on what; {seed} in it stands for the seed.
    """
    records = {}
    for number, plan in enumerate(plans):
        for origin in plan.origins:
            seed = origin.config.run.seed
            generator = np.random.default_rng([seed, number])
            above = torch.from_numpy(np.where(generator.random(N_USERS) < hits[plan.label], 0, 50))
            folder = f"runs/{plan.label}-{seed}"
            ranks = {name: Ranks(above.clone(), torch.zeros_like(above)) for name in ("candidates", "catalogue")}
            write_ranks(root / folder / "ranks.safetensors", RankFile(test.format(seed=seed), ranks), "run")
            summary: dict[str, Any] = {
                "dataset": "demo",
                "method": plan.method,
                "seed": seed,
                "rounds": 5,
                "data": {"users": N_USERS},
                "protocol": {"selection": "last"},
                "seconds": {"total": 1.0},
                "bytes": {"up": 4000, "down": 8000},
                "privacy": {"leaves_device": ["x"], "noise_multiplier": 0.5},
                "reference": {"popularity": {"HR@10": 0.5}} if reference else {},
                "reference_full": {},
            }
            mark = config_fingerprint(origin.config)
            records[mark] = Record("finished", mark, folder, origin.config.to_dict(), summary, trained=200)
    return records
