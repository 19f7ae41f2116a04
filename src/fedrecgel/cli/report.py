"""`fedrecgel report`: one page, tables and figures from an experiments' folder."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrecgel.cli.common import writable
from fedrecgel.errors import ConfigError
from fedrecgel.report.write import write_report
from fedrecgel.studies.archive import pack

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `report`."""
    parser = subparsers.add_parser(
        "report",
        help="a page, tables and figures of experiments",
        description="Make one HTML page that works without a network, tables in Markdown and LaTeX and figures for "
        "papers from the results in a folder: that of `fedrecgel experiment`, or one with run folders.",
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="experiments' folder, a folder of run folders, a run folder, or one with packed results (*.tar.xz)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the page (default DIR/report.html); tables and figures go beside it"
    )
    parser.add_argument("--no-figures", action="store_true", help="leave out PNG, SVG and PDF")
    parser.add_argument(
        "--pack",
        metavar="FILE.tar.xz",
        help="write the results themselves to one compressed file instead: settings, metrics of every round, summary "
        "and every user's ranks, no models; a folder of such files is a folder for this command",
    )
    parser.set_defaults(run=run_report)


def run_report(args: Namespace) -> int:
    """Write everything and say where it is."""
    root = Path(args.folder)
    if args.pack:
        count = pack(root, target := Path(args.pack))
        print(f"{target} ({target.stat().st_size / 1e6:.2f} MB), {count} files")
        return 0
    page = Path(args.output) if args.output else root / "report.html"
    writable(page.parent, "-o")
    if page.is_dir():
        raise ConfigError(f"-o should be a file. Found the folder '{page}'.")
    words = ["fedrecgel", "report", args.folder, *(["-o", args.output] if args.output else [])]
    written = write_report(root, page, shlex.join(words), figures=not args.no_figures)
    if written.missing:
        print(written.missing, file=sys.stderr)
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB), {written.tables} tables, {written.figures} figures")
    return 0
