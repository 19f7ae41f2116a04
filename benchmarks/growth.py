"""Cost of a round as the population grows: seconds per merged sample and peak memory, each size in its own process.

    python benchmarks/growth.py [--accelerate] [USERS ...]

Twenty interactions per user, a tenth as many items as users, one client in a hundred per round.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from statistics import median

import torch

from fedrecgel.bench.measure import Contender, Pace, cpu_seconds, peak_rss_gb
from fedrecgel.data.federation import Federation
from fedrecgel.data.synthetic import generate
from fedrecgel.methods.fedrecgel import FedRecGEL

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def measure(users: int, accelerate: bool) -> None:
    """Three rounds on one worker; prints one row."""
    torch.set_num_threads(1)
    federation = Federation(generate(users, users // 10, 20 * users).split())
    contender = Contender(FedRecGEL(fraction=0.01), federation, workers=1, accelerate=accelerate)
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


def main() -> None:
    """All sizes, one process after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("users", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--accelerate", action="store_true", help="through the native kernel")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure(args.users[0], args.accelerate)
        return
    names = ("users", "items", "rows", "clients", "samples", "seconds", "us/sample", "RSS GB")
    print("".join(f"{name:>{width}}" for name, width in zip(names, (10, 9, 12, 9, 11, 9, 11, 9), strict=True)))
    for users in args.users:
        more = ["--accelerate"] if args.accelerate else []
        subprocess.run([sys.executable, __file__, "--one", str(users), *more], check=True)


if __name__ == "__main__":
    main()
