"""`fedrecgel forget`: remove a user from a finished run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from fedrecgel.cli.common import warnings_as_sentences

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `forget`."""
    parser = subparsers.add_parser(
        "forget",
        help="remove a user from a finished run",
        description="Remove a user's private part, history and ranks from the folder of a finished run, and its "
        "checkpoint, and say what the shared model still contains. Stopped in the middle, the same command completes "
        "it.",
    )
    parser.add_argument("folder", metavar="RUN", help="folder of a finished run")
    parser.add_argument("--user", metavar="ID", required=True, help="whom")
    parser.set_defaults(run=run_forget)


def run_forget(args: Namespace) -> int:
    """Remove the user; a user who is not there changes nothing."""
    from fedrecgel.runs.rewrite import forget  # here, because it imports torch

    with warnings_as_sentences():
        found = forget(args.folder, args.user)
    print("\n".join(found.sentences))
    return 0
