"""Cost of a round as the population grows: seconds per merged sample and peak memory, each size in its own process.

    python benchmarks/growth.py [--accelerate] [--command] [--method NAME] [USERS ...]

Twenty interactions per user, a tenth as many items as users, one client in a hundred per round. With --command, the
whole `fedrecgel train`: data, split, three rounds, evaluation among 99 candidates, popularity, checkpoint and files.
With --method, too, that method's whole command: one that states its rounds takes all of them, with all clients.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from fedrecgel.bench.measure import Contender, Pace, cpu_seconds, peak_rss_gb
from fedrecgel.cli.main import main as fedrecgel
from fedrecgel.data.federation import Federation
from fedrecgel.data.synthetic import generate
from fedrecgel.methods import METHODS
from fedrecgel.methods.fedrecgel import FedRecGEL

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
ROUND_COLUMNS = {
    **{"users": 10, "items": 9, "rows": 12, "clients": 9},
    **{"samples": 11, "seconds": 9, "us/sample": 11, "RSS GB": 9},
}
COMMAND_COLUMNS = {"users": 10, "items": 9, "rows": 12, "train s": 9, "evaluate s": 12, "all s": 8, "RSS GB": 9}


def measure(users: int, accelerate: bool) -> None:
    """Three rounds on one worker; prints one row."""
    torch.set_num_threads(1)
    federation = Federation(generate(users, users // 10, 20 * users).split())
    method = FedRecGEL(fraction=0.01, init="normal")  # no sums over everybody before the rounds that are measured
    contender = Contender(method, federation, workers=1, accelerate=accelerate)
    contender.train()
    pace = Pace()
    for _ in range(3):
        pace.samples.append(contender.samples())
        pace.train.append(cpu_seconds(contender.train))
    print(
        f"{users:>10,}{users // 10:>9,}{20 * users:>12,}{len(contender.cohort()):>9,}{median(pace.samples):>11,}"
        f"{median(pace.train):>9.3f}{1e6 / pace.samples_per_second:>11.2f}{peak_rss_gb():>9.2f}",
        flush=True,
    )


def measure_command(users: int, accelerate: bool, method: str) -> None:
    """The whole command on all cores, wall time; prints one row."""
    settings = {
        **{"data.users": users, "data.items": users // 10, "data.interactions": 20 * users},
        **{"evaluation.full": "false", "local.accelerate": str(accelerate).lower()},
    }
    words = ["--method", method]
    if METHODS[method]().rounds is None:
        settings["method.fraction"] = 0.01
        words += ["--rounds", "3"]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    started = time.perf_counter()
    with TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        if fedrecgel(["train", "--dataset", "synthetic", "--quiet", "--out", run, *words]):
            raise SystemExit(1)
        seconds, peak = time.perf_counter() - started, peak_rss_gb()
        spent = json.loads((Path(run) / "summary.json").read_text(encoding="utf-8"))["seconds"]
    print(
        f"{users:>10,}{users // 10:>9,}{20 * users:>12,}{spent['train']:>9.1f}{spent['evaluate']:>12.1f}"
        f"{seconds:>8.1f}{peak:>9.2f}",
        flush=True,
    )


def main() -> None:
    """All sizes, one process after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("users", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--accelerate", action="store_true", help="through the native kernel")
    parser.add_argument("--command", action="store_true", help="the whole command instead of a round")
    parser.add_argument("--method", default="fedrecgel", choices=sorted(METHODS), help="of --command")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        if args.command:
            measure_command(args.users[0], args.accelerate, args.method)
        else:
            measure(args.users[0], args.accelerate)
        return
    columns = COMMAND_COLUMNS if args.command else ROUND_COLUMNS
    print("".join(f"{name:>{width}}" for name, width in columns.items()), flush=True)
    for users in args.users:
        more = [f"--{name}" for name in ("accelerate", "command") if getattr(args, name)]
        subprocess.run([sys.executable, __file__, "--one", str(users), "--method", args.method, *more], check=True)


if __name__ == "__main__":
    main()
