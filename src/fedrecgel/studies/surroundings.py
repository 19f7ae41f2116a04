"""What stands around results: the data sets and the machine, described in the experiments' folder."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fedrecgel.data.audit import audit
from fedrecgel.data.split import Split
from fedrecgel.runs.config import Config
from fedrecgel.runs.summary import source_commit
from fedrecgel.storage import write_text
from fedrecgel.studies.cells import shown_name
from fedrecgel.studies.tasks import split_of


def describe_data(root: Path, configs: Iterable[Config]) -> None:
    """data/<dataset>.json: sizes, what makes results on it easy to misread, and what bounds them."""
    for config in {config.data.name: config for config in configs}.values():
        path = root / "data" / f"{shown_name(config.data.name)}.json"
        if not path.exists():
            write_text(path, json.dumps(data_facts(split_of(config.data, config.split)), indent=1) + "\n")


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
