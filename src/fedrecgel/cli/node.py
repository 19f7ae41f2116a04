"""`fedrecgel node`: serve the users of one shard, until stopped."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrecgel.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `node`."""
    parser = subparsers.add_parser(
        "node",
        help="host users for a run on several machines",
        description="Start a Flower SuperNode that hosts the users of one shard. Their data and private state stay in "
        "the shard's folder. See docs/deploy.md.",
    )
    parser.add_argument("--shard", required=True, metavar="FILE|DIR", help="a folder that `fedrecgel data shard` made")
    parser.add_argument("--superlink", default="127.0.0.1:8000", metavar="HOST:PORT", help="where the server is")
    parser.add_argument("--certificate", metavar="PEM", help="the authority that signed the server's certificate")
    parser.add_argument("--key", metavar="FILE", help="this node's private key; its public half is known to the server")
    parser.add_argument("--insecure", action="store_true", help="no TLS: for trials on one machine only")
    parser.add_argument("--port", type=int, metavar="N", help="a free port of this machine for the node's own use")
    parser.add_argument("--retries", type=int, metavar="N", help="give up connecting after so many (default: never)")
    parser.add_argument(
        "--wait",
        type=float,
        default=90.0,
        metavar="SECONDS",
        help="keep trying while the server refuses this node (default 90): a killed one counts as present for a minute",
    )
    parser.set_defaults(run=run_node)


def run_node(args: Namespace) -> int:
    """Run the node."""
    if args.insecure == (args.certificate is not None):
        raise ConfigError("A node needs --certificate, or --insecure for a trial on one machine. Give one of them.")
    if args.insecure and args.key:
        raise ConfigError("A key is worth nothing without TLS. Give --certificate with --key.")
    for path in (args.certificate, args.key):
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"There is no file '{path}'.")
    from fedrecgel.engine.flower.processes import environment, keep_node, node_command
    from fedrecgel.engine.flower.shard import read_shard  # here, because it imports torch

    shard = read_shard(Path(args.shard))
    certificate, key = (Path(path) if path else None for path in (args.certificate, args.key))
    command = node_command(
        shard.folder, args.superlink, certificate=certificate, key=key, port=args.port, retries=args.retries
    )
    home = shard.folder / "flower"
    home.mkdir(exist_ok=True)
    print(f"Hosting {len(shard.users):,} users of {shard.facts['name']}; state in {shard.state}", file=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the node below, too
    return keep_node(command, environment(home), _say, args.wait)


def _say(line: str) -> None:
    print(line, end="", file=sys.stderr, flush=True)
