"""`fedrecgel recommend`: what a finished run recommends, to one user or to all."""

from __future__ import annotations

import json
import sys
import warnings
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrecgel.cli.common import INTERRUPTED, warnings_as_sentences
from fedrecgel.errors import ConfigError, RunFolderError, StorageError

ESTIMATED_FROM = 1_000_000_000
"""Scores from which on it is worth a moment to say how long they will take."""

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from fedrecgel.runs.recommend import Recommendation
    from fedrecgel.runs.result import Result

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
    parser.add_argument("--among", metavar="FILE", help="recommend items of this list only")
    parser.add_argument("--exclude", metavar="FILE", help="recommend no item of this list")
    parser.add_argument("--titles", metavar="FILE", help=".csv or .parquet with columns item and title, kept in RUN")
    parser.add_argument("--json", action="store_true", help="with --user or --history: print one JSON document")
    parser.add_argument(
        "--because", action="store_true", help="with --all: a column of own items that speak for each; takes longer"
    )
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
    if args.because and not args.all:
        raise ConfigError("--because adds a column to the file of --all. For one user reasons are always shown.")
    from fedrecgel.runs.choice import read_items  # here, because it imports torch
    from fedrecgel.runs.everyone import check_table_path
    from fedrecgel.runs.recommend import user_number
    from fedrecgel.runs.result import open_run
    from fedrecgel.runs.rewrite import keep_titles, settle

    if args.all:
        check_table_path(Path(args.output))
    lists = {name: read_items(path) for name in ("among", "exclude") if (path := getattr(args, name)) is not None}
    with warnings_as_sentences():
        if args.titles is not None:
            settle(args.folder)
        result = open_run(args.folder)
        if args.titles is not None:
            result = result.with_titles(args.titles)
            try:
                keep_titles(args.folder, result)
            except (RunFolderError, StorageError) as error:
                warnings.warn(f"The titles are not kept: {error}", stacklevel=1)
        if args.all:
            return _write_all(result, Path(args.output), args.k, lists, because=args.because)
        if args.history is not None:
            items = [item.strip() for item in args.history.split(",") if item.strip()]
            user, found = None, result.recommend(None, args.k, history=items, **lists)
        else:
            user, found = result.user_ids[user_number(result, args.user)], result.recommend(args.user, args.k, **lists)
    print(json.dumps([as_row(user, found)], indent=1, ensure_ascii=False) if args.json else _as_text(found))
    return 0


def as_row(user: int | str | None, found: list[Recommendation]) -> dict[str, Any]:
    """What programs read of one user."""
    rows = [
        {"item": best.item, "title": best.title, "score": best.score, "rank": rank, "because": list(best.because)}
        for rank, best in enumerate(found, 1)
    ]
    return {"user": user, "items": rows}


def _as_text(found: list[Recommendation]) -> str:
    """A table; columns that no recommendation fills are left out."""
    if not found:
        return "Nothing is left to recommend: the user has every item that may be recommended."
    columns = {"item": [str(best.item) for best in found], "title": [best.title or "" for best in found]}
    columns["because of"] = [", ".join(map(str, best.because)) for best in found]
    shown = {name: [name, *values] for name, values in columns.items() if name == "item" or any(values)}
    widths = {name: max(map(len, values)) for name, values in shown.items()}
    scores = ["score", *(f"{best.score:.4f}" for best in found)]
    lines = []
    for rank, score in enumerate(scores):
        cells = {name: f"{values[rank]:<{widths[name]}}" for name, values in shown.items()}
        because = cells.pop("because of", "")
        lines.append("  ".join([f"{rank or 'rank':>4}", *cells.values(), f"{score:>10}", because]).rstrip())
    return "\n".join(lines)


def _write_all(result: Result, path: Path, k: int, lists: dict[str, list[str]], *, because: bool) -> int:
    from fedrecgel.cli.user_progress import UserProgress, describe_seconds  # here, because they import torch
    from fedrecgel.runs.choice import allow
    from fedrecgel.runs.everyone import Everyone
    from fedrecgel.runs.recommend_parts import parts_folder, write_in_parts

    n_users, n_items = len(result.user_ids), len(result.item_ids)
    everyone = Everyone(result, k, allow(result, lists.get("among"), lists.get("exclude")), because=because)
    progress = UserProgress(n_users)
    about = ""
    if n_users * n_items > ESTIMATED_FROM:
        about = (
            f" About {describe_seconds(everyone.estimate(n_users))} for all of them on {everyone.workers.n} workers."
        )
    print(f"Ranking {n_items:,} items for {n_users:,} users …{about}", file=sys.stderr)
    try:
        n_rows = write_in_parts(everyone, path, progress)
    except KeyboardInterrupt:
        progress.close()
        print(f"Stopped. What is done is in {parts_folder(path)}; continue with the same command.", file=sys.stderr)
        return INTERRUPTED
    progress.close()
    print(f"{n_rows:,} recommendations for {n_users:,} users are in {path}")
    return 0
