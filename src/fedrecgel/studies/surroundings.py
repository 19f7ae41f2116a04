"""What stands around results: the data sets and the machine, described in the experiments' folder."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrecgel.data.audit import audit
from fedrecgel.data.split import Split
from fedrecgel.runs.config import Config
from fedrecgel.runs.ranks_file import test_fingerprint
from fedrecgel.runs.settings import CHANGE_NO_NUMBER, settings_fingerprint
from fedrecgel.runs.summary import source_commit
from fedrecgel.storage import write_text
from fedrecgel.studies.cells import shown_name
from fedrecgel.studies.tasks import split_of

USERS = "users"
"""Folder of what is known about the users of each split."""
MANY_USERS = 200_000
"""Splits of more users are not described: the file would weigh more than the results."""


@dataclass(frozen=True)
class UserFacts:
    """Users of a split in their order."""

    test: str
    """Fingerprint of who is tested on what, as in the ranks of runs."""
    history: list[int]
    """Training items of each user."""
    popularity: list[int]
    """How many users train on each user's held-out item."""


def describe_data(root: Path, configs: Iterable[Config]) -> None:
    """data/<dataset>.json: sizes, what makes results on it easy to misread, and what bounds them."""
    for config in {config.data.name: config for config in configs}.values():
        path = root / "data" / f"{shown_name(config.data.name)}.json"
        if not path.exists():
            write_text(path, json.dumps(data_facts(split_of(config.data, config.split)), indent=1) + "\n")


def describe_users(root: Path, configs: Iterable[Config]) -> None:
    """users/<split>.json: of every split the length of histories and how popular held-out items are."""
    splits = {(config.data, config.split): config for config in configs}
    for config in splits.values():
        settings = {name: config.to_dict()[name] for name in ("data", "split")}
        path = root / USERS / f"{settings_fingerprint(settings, CHANGE_NO_NUMBER)[:16]}.json"
        if not path.exists():
            facts = user_facts(split_of(config.data, config.split))
            if facts is not None:
                write_text(path, json.dumps(asdict(facts), separators=(",", ":")) + "\n")


def user_facts(split: Split) -> UserFacts | None:
    """Of a split with one held-out item for each user; None for others."""
    if split.several or split.n_users > MANY_USERS:
        return None
    trained = np.bincount(split.train.items, minlength=split.n_items)
    return UserFacts(test_fingerprint(split), np.diff(split.train.ptr).tolist(), trained[split.test].tolist())


def data_facts(split: Split) -> dict[str, Any]:
    """What a reader should know about the data behind results."""
    data, found = split.interactions, audit(split)
    return {
        "name": data.name,
        "users": split.n_users,
        "items": split.n_items,
        "interactions": len(data),
        "source": data.source,
        "licence": data.licence,
        "sha256": data.sha256,
        "ties": split.tie_rule,
        "ceiling": 1 - found.heldout_unseen,
        **asdict(found),
    }


def describe_environment(root: Path) -> None:
    """environment.json: the machine of the latest command."""
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "commit": source_commit(),
    }
    write_text(root / "environment.json", json.dumps(facts, indent=1) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
