"""What the paired test promises, measured on simulated methods: false alarms, power, coverage.

    python benchmarks/null_simulation.py             # every table of docs/statistics.md, some minutes
    python benchmarks/null_simulation.py --repetitions 300

The methods are those of `src/fedrecgel/studies/simulated.py`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedrecgel.studies.simulated import World
from fedrecgel.studies.statistics import LEVEL, Comparison

SEEDS, USERS, LUCK = (2, 3, 5, 10), (500, 2000), (0.0, 0.5, 1.5)
"""Luck: standard deviation over seeds of a method's HR@10, in points."""


def repeat(world: World, repetitions: int) -> Iterator[list[Comparison]]:
    """Families of comparisons, one after the other."""
    generator = np.random.default_rng([world.users, world.seeds, round(10 * world.luck), len(world.gains)])
    return (world.family(generator) for _ in range(repetitions))


def alarms(world: World, repetitions: int) -> float:
    """Share of single tests with p below the level."""
    return sum(family[0].p < LEVEL for family in repeat(world, repetitions)) / repetitions


def false_alarms(repetitions: int) -> dict[str, float]:
    """By luck, users and seeds."""
    return {
        f"luck {luck:g}, {users} users, {seeds} seeds": alarms(World(users, seeds, luck), repetitions)
        for luck in LUCK
        for users in USERS
        for seeds in SEEDS
    }


def power(repetitions: int) -> dict[str, float]:
    """Share of tests that see a difference of half a point, or of one."""
    return {
        f"luck {luck:g}, {users} users, {seeds} seeds, {gain:g} points": alarms(
            World(users, seeds, luck, (gain,)), repetitions
        )
        for luck in LUCK
        for users in USERS
        for seeds in (5, 10)
        for gain in (0.5, 1.0)
    }


def families(repetitions: int) -> dict[str, dict[str, float]]:
    """Eight methods against a ninth: how often any mark is false, and how often all intervals are true."""
    found = {}
    for name, gains in {"none differs": (0.0,) * 8, "half differ": (0.0,) * 4 + (1.0, 2.0, 4.0, -4.0)}.items():
        for luck in LUCK:
            world = World(1200, 5, luck, gains)
            false_mark = covered = 0
            for family in repeat(world, repetitions):
                told = list(zip(family, gains, strict=True))
                false_mark += any(one.sign != 0 and one.sign != np.sign(gain) for one, gain in told)
                covered += all(100 * one.low <= gain <= 100 * one.high for one, gain in told)
            found[f"{name}, luck {luck:g}"] = {
                "any false mark": false_mark / repetitions,
                "all intervals true": covered / repetitions,
            }
    return found


def wrongly_alike(repetitions: int) -> dict[str, float]:
    """How often 'no clear difference' is said of two methods that are two points apart."""
    worlds = {f"luck {luck:g}, {users} users": World(users, 5, luck, (2.0,)) for luck in LUCK for users in USERS}
    return {
        name: sum(family[0].verdict == "alike" for family in repeat(world, repetitions)) / repetitions
        for name, world in worlds.items()
    }


def main() -> None:
    """Measure everything, print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000, help="of every test (default %(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    repetitions = args.repetitions
    found = {
        "repetitions": repetitions,
        "false alarms": false_alarms(repetitions),
        "power": power(repetitions // 2),
        "families": families(repetitions // 2),
        "wrongly alike": wrongly_alike(repetitions // 2),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
