"""Fail when a round has become slower than recorded: ratios within one run, never seconds.

    fedrecgel bench --json > bench.json && python benchmarks/check.py bench.json

Not part of the tests: it needs a quiet machine. The floors are in floors.toml beside this file.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

FLOORS = Path(__file__).with_name("floors.toml")


def failures(found: dict[str, dict[str, float]], floors: dict[str, dict[str, float]]) -> list[str]:
    """One sentence for each number below its floor."""
    return [
        f"{name}: {key} is {found[name][key]:.1f}, the floor is {floor}"
        for name, row in floors.items()
        if name in found
        for key, floor in row.items()
        if found[name].get(key) is not None and found[name][key] < floor
    ]


def main() -> int:
    """Compare the bench's JSON document with the recorded floors."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    datasets = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["datasets"]
    rows = dict(datasets)
    rows |= {f"{name}-accelerated": row["accelerated"] for name, row in datasets.items() if row["accelerated"]}
    slow = failures(rows, tomllib.loads(FLOORS.read_text(encoding="utf-8")))
    print("\n".join(slow) or f"{len(rows)} rows are at or above their floors.")
    return bool(slow)


if __name__ == "__main__":
    sys.exit(main())
