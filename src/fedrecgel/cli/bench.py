"""`fedrecgel bench`: seconds per round beside the naive engine and the machine's peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING, Any

from fedrecgel.bench.machine import bandwidth_gb_s, load_average
from fedrecgel.bench.measure import CASES, measure
from fedrecgel.engine.workers import available_cores
from fedrecgel.errors import RunError
from fedrecgel.runs.config import lookup

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `bench`."""
    parser = subparsers.add_parser(
        "bench",
        help="measure a round on this machine",
        description="Measure FedRecGEL's round: processor seconds on one worker, medians, beside the naive engine that "
        "copies a module per client (a sample of clients, scaled) and beside the measured peak of a core.",
        epilog="Ratios are taken within one run. Data sets: " + ", ".join(CASES),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dataset", metavar="NAME", help="only this one (default: all but `million`)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_bench)


def run_bench(args: Namespace) -> int:
    """Measure, each data set in a process of its own, so that its peak memory is its own."""
    if args.dataset is None:
        found = _in_processes([name for name in CASES if name != "million"], args)
    else:
        case = lookup("benchmark", args.dataset, CASES)
        row, peak_gflops = measure(case, args.data_dir)
        found = {"machine": describe_machine(peak_gflops), "datasets": {args.dataset: row}}
    print(json.dumps(found, indent=1) if args.json else table(found))
    return 0


def describe_machine(peak_gflops: float) -> dict[str, Any]:
    """Cores, measured peaks and the load."""
    return {
        "cores": available_cores(),
        "fma_gflops_per_core": peak_gflops,
        "bandwidth_gb_s": bandwidth_gb_s(),
        "load": load_average(),
    }


def _in_processes(names: list[str], args: Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": {}, "datasets": {}}
    for name in names:
        if not args.json:
            print(f"Measuring {name} …", file=sys.stderr)
        command = [sys.executable, "-m", "fedrecgel", "bench", "--dataset", name, "--json"]
        command += ["--data-dir", args.data_dir] if args.data_dir else []
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
        if done.returncode:
            reason = done.stderr.strip().removeprefix("fedrecgel: ")
            print(f"{name} is left out. {reason}", file=sys.stderr)
            continue
        part = json.loads(done.stdout)
        found["machine"] = part["machine"]
        found["datasets"] |= part["datasets"]
    if not found["datasets"]:
        raise RunError("No data set could be measured. Name the folder of the raw files with --data-dir.")
    return found


def table(found: dict[str, Any]) -> str:
    """The measurements for people."""
    machine = found["machine"]
    lines = [
        f"{machine['cores']} cores, {machine['fma_gflops_per_core']:.0f} GFLOP/s and "
        f"{machine['bandwidth_gb_s']:.0f} GB/s per core measured, load {machine['load']:.2f}",
        f"{'':<28}{'clients':>8}{'samples':>9}{'train s':>9}{'samples/s':>11}{'eval s':>8}{'naive s':>9}{'ratio':>8}"
        f"{'% peak':>8}{'2 workers':>11}{'RSS GB':>8}",
    ]
    for name, row in found["datasets"].items():
        for kind, part in (("", row), (" accelerated", row["accelerated"])):
            if part is None:
                continue
            speedup = row["two_workers_speedup"].get(kind.strip() or "plain")
            lines.append(
                f"{name + kind:<28}{part['clients']:>8,}{part['samples']:>9,}{part['train_seconds']:>9.3f}"
                f"{part['samples_per_second']:>11,.0f}{_number(part['evaluate_seconds'], '8.3f')}"
                f"{_number(part['naive_train_seconds'], '9.2f')}"
                f"{_number(part['ratio_to_naive'], '8.1f')}{part['percent_of_peak']:>8.1f}{_number(speedup, '11.2f')}"
                f"{part['peak_rss_gb']:>8.2f}"
            )
    return "\n".join(lines)


def _number(value: float | None, shape: str) -> str:
    width = int(shape.split(".")[0])
    return " " * (width - 1) + "-" if value is None else f"{value:>{shape}}"
