"""`fedrecgel compare`: which of some runs is better, user by user."""

from __future__ import annotations

import json
import shlex
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from fedrecgel.cli.common import writable
from fedrecgel.report.compare import check_name, compare

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `compare`."""
    parser = subparsers.add_parser(
        "compare",
        help="which of some runs is better, user by user",
        description="Test every pair of configurations among finished runs on the same split: paired over users and "
        "seeds, corrected for the number of pairs. Runs that differ in their seeds only are one configuration.",
        epilog="▲ ▼ above or below, ≈ no clear difference (the interval lies within ±2 points), ? open. Below five\n"
        "seeds there is no sign:\n  for s in 0 1 2 3 4; do fedrecgel train --method fedmf --seed $s; done\n"
        "  fedrecgel compare runs/demo-fedmf-s* runs/demo-spectra-s* -o comparison.html",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", metavar="RUN", nargs="+", help="folders of finished runs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="also write a page (.html), a figure (.png, .svg, .pdf), tables (.md, .tex) or all numbers (.json)",
    )
    parser.set_defaults(run=run_compare)


def run_compare(args: Namespace) -> int:
    """Test, print, write."""
    target = Path(args.output) if args.output else None
    if target is not None:
        check_name(target)
        writable(target.parent, "-o")
    words = ["fedrecgel", "compare", *args.folders]
    found = compare(*args.folders, command=shlex.join(words))
    print(json.dumps(found.to_dict(), indent=1) if args.json else "\n".join([found.text(), "", *found.sentences()]))
    if target is not None:
        found.save(target)
    return 0
