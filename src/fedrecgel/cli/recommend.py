"""`fedrecgel recommend`: what a finished run recommends, to one user or to all."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrecgel.cli.common import INTERRUPTED, warnings_as_sentences
from fedrecgel.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `recommend`."""
    parser = subparsers.add_parser(
        "recommend",
        help="what a finished run recommends",
        description="The best items for a user, or for all, among those the user has not trained on. Stopped in the "
        "middle, --all leaves its finished parts in FILE.parts; the same command continues behind them.",
    )
    parser.add_argument("folder", metavar="RUN", help="folder of a finished run")
    whom = parser.add_mutually_exclusive_group(required=True)
    whom.add_argument("--user", metavar="ID", help="print recommendations for this user")
    whom.add_argument(
        "--history", metavar="ID,ID,...", help="print recommendations for somebody with these items, oldest first"
    )
    whom.add_argument("--all", action="store_true", help="write recommendations for every user to FILE")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="items per user (default 10)")
    parser.add_argument("--json", action="store_true", help="with --user or --history: print one JSON document")
    parser.add_argument(
        "-o", dest="output", metavar="FILE", help="with --all: .parquet or .csv with columns user, rank, item, score"
    )
    parser.set_defaults(run=run_recommend)


def run_recommend(args: Namespace) -> int:
    """Print or write."""
    if args.all and args.output is None:
        raise ConfigError("--all writes a file. Name it with -o FILE.parquet or -o FILE.csv.")
    if args.all and args.json:
        raise ConfigError("--json prints the recommendations of one user. Leave it out with --all.")
    if not args.all and args.output is not None:
        raise ConfigError("-o is the file of --all. Leave it out for one user, or take --json and redirect.")
    if args.all:
        return _write_all(args.folder, Path(args.output), args.k)
    from fedrecgel.runs.recommend import user_number  # here, because it imports torch
    from fedrecgel.runs.result import open_run

    with warnings_as_sentences():
        result = open_run(args.folder)
        if args.history is not None:
            items = [item.strip() for item in args.history.split(",") if item.strip()]
            user, found = None, result.recommend(history=items, k=args.k)
        else:
            user, found = result.user_ids[user_number(result, args.user)], result.recommend(args.user, args.k)
    if args.json:
        rows = [{"item": best.item, "score": best.score, "rank": rank} for rank, best in enumerate(found, 1)]
        print(json.dumps([{"user": user, "items": rows}], indent=1, ensure_ascii=False))
        return 0
    width = max(len("item"), *(len(str(best.item)) for best in found))
    print(f"rank  {'item':<{width}}  {'score':>10}")
    for rank, best in enumerate(found, 1):
        print(f"{rank:>4}  {best.item!s:<{width}}  {best.score:>10.4f}")
    return 0


def _write_all(folder: str, path: Path, k: int) -> int:
    from fedrecgel.cli.progress import UserProgress  # here, because they import torch
    from fedrecgel.runs.recommend import Everyone, check_table_path
    from fedrecgel.runs.recommend_parts import parts_folder, write_in_parts
    from fedrecgel.runs.result import open_run

    check_table_path(path)
    result = open_run(folder)
    n_users, n_items = len(result.user_ids), len(result.item_ids)
    everyone, progress = Everyone(result, k), UserProgress(n_users)
    print(f"Ranking {n_items:,} items for {n_users:,} users …", file=sys.stderr)
    try:
        n_rows = write_in_parts(everyone, path, progress)
    except KeyboardInterrupt:
        progress.close()
        print(f"Stopped. What is done is in {parts_folder(path)}; continue with the same command.", file=sys.stderr)
        return INTERRUPTED
    progress.close()
    print(f"{n_rows:,} recommendations for {n_users:,} users are in {path}")
    return 0
