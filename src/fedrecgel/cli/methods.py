"""`fedrecgel methods`: what there is, what each does, and what leaves the device."""

from __future__ import annotations

import inspect
import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedrecgel.cli.common import describe_fields
from fedrecgel.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from fedrecgel.methods import Method

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `methods`."""
    parser = subparsers.add_parser("methods", help="list methods, or explain one")
    parser.add_argument("name", nargs="?", metavar="NAME|FILE.py:CLASS", help="explain this method")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_methods)


def run_methods(args: Namespace) -> int:
    """Print the list or one method."""
    from fedrecgel.methods import find_method  # here, because it imports torch

    chosen = {args.name: find_method(args.name)} if args.name else everything()
    if args.json:
        print(json.dumps([facts(name, kind) for name, kind in chosen.items()], indent=1))
    elif args.name:
        print(explain(args.name, chosen[args.name]))
    else:
        for name, kind in chosen.items():
            print(f"{name:<16}{kind.kind:<12}{kind.paper:<55}{(kind.__doc__ or '').splitlines()[0]}")
    return 0


def everything() -> dict[str, type[Method]]:
    """Our own methods, and those that installed packages announce; one that cannot be loaded is named on stderr."""
    from fedrecgel.methods import METHODS, announced, load_entry

    found = dict(METHODS)
    for name, entry in announced().items():
        if name not in METHODS:
            try:
                found[name] = load_entry(entry)
            except ConfigError as error:
                print(f"{name} is left out. {error}", file=sys.stderr)
    return found


def facts(name: str, kind: type[Method]) -> dict[str, Any]:
    """One method for programs."""
    from fedrecgel.channels.registry import server_sees

    method = kind()
    return {
        "name": name,
        "kind": kind.kind,
        "paper": kind.paper,
        "hyperparameters": asdict(method),
        "variants": {variant: dict(values) for variant, values in kind.variants.items()},
        "leaves_device": sorted(method.leaves_device()),
        "server_needs": method.server_needs.name.lower(),
        "server_sees": server_sees(method),
    }


def explain(name: str, kind: type[Method]) -> str:
    """One method for people: its module docstring, its hyper-parameters, what it sends."""
    about = inspect.getdoc(sys.modules[kind.__module__]) or ""
    variants = "".join(f"\nvariant {variant}: {dict(values)}" for variant, values in kind.variants.items())
    return (
        f"{name} ({kind.kind})\n\n{about}\n\n"
        f"Hyper-parameters (--set method.KEY=VALUE):\n{describe_fields(kind)}{variants}\n\n"
        f"Leaves the device at these defaults: {', '.join(sorted(kind().leaves_device()))}\n"
        f"The server needs: {kind().server_needs.name.lower()}\n"
        f"The server sees, by channel:\n{_seen(kind())}"
    )


def _seen(method: Method) -> str:
    """What the server sees of this method's uploads, one line for each channel."""
    from fedrecgel.channels.registry import server_sees

    return "\n".join(f"  {name:<10}{seen}" for name, seen in server_sees(method).items())
