"""`fedrecgel data`: which data sets there are, their sizes, their traps, and how to get them."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedrecgel.cli.common import add_columns_option, add_set_option, config_of, writable
from fedrecgel.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `data` and its five actions."""
    parser = subparsers.add_parser("data", help="list, inspect, audit, fetch and deal out data sets")
    actions = parser.add_subparsers(dest="action", metavar="list|info|audit|fetch|shard", required=True)
    actions.add_parser("list", help="named data sets").set_defaults(run=run_list)
    for name, run, text in (
        ("info", run_info, "sizes, origin and licence"),
        ("audit", run_audit, "what makes results on it easy to misread"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("dataset", metavar="NAME|PATH", help="a name of `data list`, or a file")
        action.add_argument("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
        add_columns_option(action)
        add_set_option(action)
        action.add_argument("--json", action="store_true", help="print one JSON document")
        action.set_defaults(run=run)
    fetch = actions.add_parser("fetch", help="download into the cache")
    fetch.add_argument("dataset", metavar="NAME", help="a name of `data list`")
    fetch.set_defaults(run=run_fetch)
    shard = actions.add_parser("shard", help="deal the users out to folders that `fedrecgel node` serves")
    shard.add_argument("dataset", metavar="NAME|PATH", help="a name of `data list`, or a file")
    shard.add_argument("--nodes", type=int, default=3, metavar="N", help="how many folders (default 3)")
    shard.add_argument("--out", required=True, metavar="DIR", help="where they are made: DIR/node-0, DIR/node-1, …")
    shard.add_argument("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
    add_columns_option(shard)
    add_set_option(shard)
    shard.set_defaults(run=run_shard)


def run_list(args: Namespace) -> int:
    """Print names, sizes and one sentence each."""
    from fedrecgel.data import demo, synthetic  # in the functions, because the help needs none of them
    from fedrecgel.data.sources import SOURCES
    from fedrecgel.data.sources.source import Statistics

    rows = [("demo", demo.STATISTICS, demo.ABOUT)]
    sizes = (synthetic.USERS, synthetic.ITEMS, synthetic.INTERACTIONS)
    rows.append(
        ("synthetic", Statistics(*sizes), "Generated for benchmarks; any size by data.users, items, interactions.")
    )
    rows += [(name, source.expected, source.about) for name, source in SOURCES.items()]
    print(f"{'name':<20}{'users':>8}{'items':>8}{'interactions':>14}  about")
    for name, (users, items, interactions), about in rows:
        print(f"{name:<20}{users:>8,}{items:>8,}{interactions:>14,}  {about}")
    return 0


def run_info(args: Namespace) -> int:
    """Print sizes, origin and licence."""
    from fedrecgel.data.load import load_data
    from fedrecgel.data.sources import SOURCES

    data = load_data(config_of(args).data)
    info = {
        "name": data.name,
        "users": data.n_users,
        "items": data.n_items,
        "interactions": len(data),
        "sparsity": 1 - len(data) / (data.n_users * data.n_items),
        "min_interactions": data.min_interactions,
        "source": data.source,
        "licence": data.licence,
        "sha256": data.sha256,
    }
    if args.json:
        print(json.dumps(info))
        return 0
    _say(data.assumed)
    pinned = data.name not in SOURCES or SOURCES[data.name].sha256 is not None
    note = "" if pinned else " (of this file; no published value to compare with, the counts are checked)"
    _print_aligned({**info, "sparsity": f"{info['sparsity']:.2%}", "sha256": f"{data.sha256}{note}"})
    return 0


def run_audit(args: Namespace) -> int:
    """Print counts, fractions and warnings."""
    from fedrecgel.data.audit import audit
    from fedrecgel.runs.train import load_split

    split = load_split(config_of(args))
    found = asdict(audit(split))
    if args.json:
        print(json.dumps(found))
        return 0
    _say(split.interactions.assumed)
    warnings = found.pop("warnings")
    _print_aligned(
        {"name": split.interactions.name}
        | {key: f"{value:.2%}" if isinstance(value, float) else value for key, value in found.items()}
    )
    for warning in warnings:
        print(f"- {warning}")
    if not warnings:
        print("Nothing to warn about.")
    return 0


def run_fetch(args: Namespace) -> int:
    """Download a named data set, unless it is there already, and print where it is."""
    from fedrecgel.data.download import locate
    from fedrecgel.data.sources import SOURCES
    from fedrecgel.runs.config import lookup

    if args.dataset in ("demo", "synthetic"):
        print(f"{args.dataset} is generated; there is nothing to fetch.")
        return 0
    print(locate(lookup("data set", args.dataset, SOURCES), progress=sys.stderr.isatty()).path)
    return 0


def _say(assumed: list[str]) -> None:
    """What reading a file took for granted, beside the answer."""
    for sentence in assumed:
        print(sentence, file=sys.stderr)


def _print_aligned(values: dict[str, Any]) -> None:
    width = max(map(len, values)) + 2
    for key, value in values.items():
        print(f"{key:<{width}}{value:,}" if isinstance(value, int) else f"{key:<{width}}{value}")


def run_shard(args: Namespace) -> int:
    """Write one folder per node."""
    from fedrecgel.engine.flower.shard import write_shards
    from fedrecgel.runs.train import load_split

    out = writable(args.out)
    split = load_split(config_of(args))
    _say(split.interactions.assumed)
    if not 1 <= args.nodes <= split.n_users:
        raise ConfigError(f"--nodes should be between 1 and the number of users, {split.n_users}. Found {args.nodes}.")
    for place in write_shards(split, out, args.nodes):
        print(place)
    return 0
