"""`fedrecgel doctor`: what this machine has, for bug reports."""

from __future__ import annotations

import json
import os
import platform
from argparse import ArgumentParser, Namespace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]

PACKAGES = ("fedrecgel", "torch", "numpy", "pyarrow", "safetensors", "msgspec")
OPTIONAL = ("flwr", "optuna", "matplotlib", "tensorboard", "tenseal")
"""Of the extras flower, tune, report (two) and crypto."""


def add_parser(subparsers: Subparsers) -> None:
    """Add `doctor`."""
    parser = subparsers.add_parser("doctor", help="show versions, devices, data folders and advice")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_doctor)


def run_doctor(args: Namespace) -> int:
    """Print the findings."""
    found = examine()
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    for key, value in found.items():
        if key == "advice":
            continue
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        print(f"{key:<12}{shown}")
    for sentence in found["advice"] or ["Nothing to fix."]:
        print(f"- {sentence}")
    return 0


def examine() -> dict[str, Any]:
    """Facts about this environment."""
    import pooch  # here, because these take seconds
    import torch

    from fedrecgel.data.sources import SOURCES
    from fedrecgel.models.kernels.compiler import compiler
    from fedrecgel.runs.summary import source_commit

    devices = ["cpu"]
    devices += [f"cuda:{k}" for k in range(torch.cuda.device_count())]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    folder = os.environ.get("FEDRECGEL_DATA")
    have = {s.folder + "/" + s.file for s in SOURCES.values() if folder and (Path(folder) / s.folder / s.file).exists()}
    return {
        "versions": {name: _version(name) for name in (*PACKAGES, *OPTIONAL)},
        "compiler": compiler() or "none: local.accelerate = 'auto' goes without",
        "commit": source_commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": devices,
        "data_dir": folder,
        "data_found": sorted(have),
        "cache": str(pooch.os_cache("fedrecgel")),
        "advice": _advice(folder),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _advice(folder: str | None) -> list[str]:
    advice = []
    if folder and not Path(folder).is_dir():
        advice.append(f"FEDRECGEL_DATA names '{folder}', which is no folder.")
    if os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        advice.append("Set OMP_WAIT_POLICY=PASSIVE: idle threads that spin slow down a shared machine.")
    return advice
