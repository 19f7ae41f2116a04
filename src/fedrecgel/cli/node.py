"""`fedrecgel node`: serve the users of one shard, until stopped, by the rules of a policy."""

from __future__ import annotations

import json
import signal
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

from fedrecgel.cli.common import add_set_option, config_of, field_docs
from fedrecgel.cli.recommend import as_row
from fedrecgel.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from fedrecgel.engine.flower.policy import Policy

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `node`."""
    parser = subparsers.add_parser(
        "node",
        help="host users for a run on several machines",
        description="Start a Flower SuperNode that hosts the users of one shard. Their data and private state stay in "
        "the shard's folder. See docs/deploy.md.",
    )
    parser.add_argument("--shard", metavar="FILE|DIR", help="a folder that `fedrecgel data shard` made")
    parser.add_argument(
        "--policy", metavar="TOML", help="what this node does for a server; see `fedrecgel node policy`"
    )
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
    actions = parser.add_subparsers(dest="action", metavar="policy|recommend")
    recommend = actions.add_parser("recommend", help="what a run recommends to the users of a shard, on their node")
    recommend.add_argument("folder", metavar="RUN", help="the server's folder of a finished run, copied whole")
    recommend.add_argument("--shard", required=True, metavar="DIR", help="the node's shard")
    recommend.add_argument("--user", metavar="ID", help="one of its users (default: all)")
    recommend.add_argument("-k", type=int, default=10, metavar="N", help="items per user (default 10)")
    recommend.set_defaults(run=run_recommend)
    policy = actions.add_parser("policy", help="print a policy file to begin with: the default, or one for one run")
    policy.add_argument("config", nargs="?", metavar="CONFIG", help="a TOML file: allow this run alone")
    policy.add_argument(
        "--peers", nargs="+", default=[], metavar="FILE.pub", help="public keys of the nodes that sums are shared with"
    )
    add_set_option(policy)
    policy.set_defaults(run=run_policy)


def run_node(args: Namespace) -> int:
    """Run the node."""
    if args.shard is None:
        raise ConfigError("A node needs --shard: a folder that `fedrecgel data shard` made.")
    if args.insecure == (args.certificate is not None):
        raise ConfigError("A node needs --certificate, or --insecure for a trial on one machine. Give one of them.")
    if args.insecure and args.key:
        raise ConfigError("A key is worth nothing without TLS. Give --certificate with --key.")
    for path in (args.certificate, args.key, args.policy):
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"There is no file '{path}'.")
    from fedrecgel.engine.flower.disk import sweep  # here, because it imports torch
    from fedrecgel.engine.flower.processes import keep_node, node_command, node_environment
    from fedrecgel.engine.flower.shard import read_shard
    from fedrecgel.runs.policy import read_policy

    policy, shard = read_policy(args.policy or ""), read_shard(Path(args.shard))
    policy.check_host(len(shard.users))
    certificate, key, rules = (Path(path) if path else None for path in (args.certificate, args.key, args.policy))
    command = node_command(
        shard.folder,
        args.superlink,
        policy=rules,
        certificate=certificate,
        key=key,
        port=args.port,
        retries=args.retries,
    )
    env = node_environment(shard.folder / "flower")
    _say(f"Hosting {len(shard.users):,} users of {shard.facts['name']}; state in {shard.state}\n")
    if rules is None:
        _say(f"No --policy: {_in_words(policy)} `fedrecgel node policy` prints a file to change that.\n")
    for name in sweep(shard.state, policy.keep_days):
        _say(f"Deleted what run {name} left: nobody touched it for {policy.keep_days:g} days.\n")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the node below, too
    return keep_node(command, env, _say, args.wait)


def run_recommend(args: Namespace) -> int:
    """Print one JSON document: nothing but this process sees it."""
    from fedrecgel.engine.flower.shard import read_shard  # here, because they import torch
    from fedrecgel.runs.hosted import recommend_hosted

    found = recommend_hosted(Path(args.folder), read_shard(Path(args.shard)), args.user, args.k)
    print(json.dumps([as_row(user, best) for user, best in found], indent=1, ensure_ascii=False))
    return 0


def run_policy(args: Namespace) -> int:
    """Print a policy file with every key, its default and what it means."""
    from fedrecgel.engine.flower.policy import Policy
    from fedrecgel.runs.policy import policy_for

    policy = Policy(channels=("secagg",)) if args.peers else Policy()  # else a server could ask for plain instead
    if args.config or args.assignments:
        args.engine = "flower"
        policy = policy_for(config_of(args))
    docs = field_docs(Policy)
    lines = ["# What this node does for a server: fedrecgel node --policy THIS_FILE ...", "[policy]"]
    rules = asdict(policy)
    rules.pop("peers")
    for key, value in rules.items():
        lines += textwrap.wrap(docs[key], 100, initial_indent="# ", subsequent_indent="# ")
        lines.append(tomli_w.dumps({key: value}).strip())
    peers = {Path(place).stem: _public_line(Path(place)) for place in args.peers}
    lines += ["", f"# {docs['peers']}", tomli_w.dumps({"peers": peers}).strip()]
    print("\n".join(lines))
    return 0


def _public_line(place: Path) -> str:
    """The key in a .pub file."""
    from fedrecgel.engine.flower.peers import public_key

    try:
        line = place.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--peers takes the .pub files of nodes. '{place}' cannot be read: {error}.") from error
    public_key(line)
    return line


def _in_words(policy: Policy) -> str:
    """What a node obeys, for the one who starts it."""
    return (
        f"this node trains any installed method that needs sums only, for at least {policy.min_users} users together; "
        f"in {policy.days:g} days it answers {policy.rounds:,} training letters, {policy.rankings} for ranks among "
        f"candidates and {policy.full_rankings} for ranks in the catalogue."
    )


def _say(line: str) -> None:
    print(line, end="", file=sys.stderr, flush=True)
