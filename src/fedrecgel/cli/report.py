"""`fedrecgel report`: one page, tables and figures from an experiments' folder."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrecgel.cli.common import writable
from fedrecgel.errors import ConfigError
from fedrecgel.report.latex import RANKINGS, PaperTable, latex_table
from fedrecgel.report.write import opened, write_figure, write_report
from fedrecgel.storage import write_text
from fedrecgel.studies.archive import pack
from fedrecgel.studies.cells import SHOWN

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
        help="experiments' folder, a folder of run folders, a run folder, a file of packed results (*.tar.xz) or a "
        "folder of them",
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
    paper = parser.add_argument_group("for a paper, instead of the page")
    paper.add_argument("--latex", action="store_true", help="print one table to paste; -o FILE.tex writes it")
    paper.add_argument("--figure", metavar="NAME", help="draw one figure, as in overview-filmtrust; -o FILE.pdf")
    paper.add_argument("--columns", metavar="A,B", default=",".join(SHOWN), help="metrics (default %(default)s)")
    paper.add_argument("--methods", metavar="A,B", help="rows of the table (default: all)")
    paper.add_argument("--datasets", metavar="A,B", help="data sets of the table (default: all)")
    paper.add_argument("--ranking", choices=RANKINGS, default="candidates", help="ranked among (default %(default)s)")
    paper.add_argument("--caption", metavar="TEXT", help="of the table (default: what it shows)")
    parser.set_defaults(run=run_report)


def run_report(args: Namespace) -> int:
    """Write everything and say where it is."""
    root = Path(args.folder)
    if args.pack:
        count = pack(root, target := Path(args.pack))
        print(f"{target} ({target.stat().st_size / 1e6:.2f} MB), {count} files")
        return 0
    if args.latex or args.figure:
        return run_paper(args)
    page = Path(args.output) if args.output else (root if root.is_dir() else root.parent) / "report.html"
    writable(page.parent, "-o")
    if page.is_dir():
        raise ConfigError(f"-o should be a file. Found the folder '{page}'.")
    words = ["fedrecgel", "report", args.folder, *(["-o", args.output] if args.output else [])]
    written = write_report(root, page, shlex.join(words), figures=not args.no_figures)
    if written.missing:
        print(written.missing, file=sys.stderr)
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB), {written.tables} tables, {written.figures} figures")
    return 0


def run_paper(args: Namespace) -> int:
    """A table to paste, or one figure."""
    root, command = Path(args.folder), f"fedrecgel report {shlex.quote(args.folder)}"
    if args.figure:
        target = Path(args.output or f"{args.figure}.pdf")
        writable(target.parent, "-o")
        write_figure(root, args.figure, target, command)
        print(target)
        return 0
    methods, datasets = (None if names is None else names.split(",") for names in (args.methods, args.datasets))
    chosen = PaperTable(args.columns.split(","), methods, datasets, args.ranking, args.caption)
    with opened(root) as found:
        text = latex_table(found, chosen, f"{command} --latex")
    if args.output:
        writable(Path(args.output).parent, "-o")
        write_text(Path(args.output), text)
    else:
        print(text, end="")
    return 0
