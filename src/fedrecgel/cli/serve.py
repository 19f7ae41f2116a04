"""`fedrecgel serve`: the page of a run, for this machine's own browser."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from fedrecgel.cli.common import INTERRUPTED
from fedrecgel.cli.export import add_model_options, open_titled

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `serve`."""
    parser = subparsers.add_parser(
        "serve",
        help="a page that recommends in the browser",
        description="Show a page on this machine in which a visitor picks items and sees recommendations. The model "
        "runs in the page: what is picked stays in the browser. Only this machine can open it; to publish it, host the "
        "folder of `fedrecgel export --format web`.",
    )
    parser.add_argument("folder", metavar="RUN", help="folder of a finished run")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="default 8000; 0 for any that is free")
    add_model_options(parser)
    parser.set_defaults(run=run_serve)


def run_serve(args: Namespace) -> int:
    """Export into a temporary folder and serve it until Ctrl-C."""
    from fedrecgel.export.bundle import write_web  # here, because they import torch
    from fedrecgel.export.server import PageServer

    run = open_titled(args)
    with TemporaryDirectory(prefix="fedrecgel-") as room:
        write_web(run, Path(room) / "page", run.item_titles, args.precision)
        with PageServer(Path(room) / "page", args.port) as server:
            print(f"The page is at {server.address}. Stop with Ctrl-C.", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                return INTERRUPTED
    return 0
