"""`fedrecgel export`: a trained run as a folder for devices or browsers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from fedrecgel.cli.common import warnings_as_sentences, writable

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from fedrecgel.runs.result import Result

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `export`."""
    parser = subparsers.add_parser(
        "export",
        help="a bundle, ONNX scorer or page of a finished run",
        description="Write what a device needs of a finished run, and nothing of its users: a bundle with a runtime "
        "that ranks without torch, a scorer in ONNX, or a page in which the model runs in the browser.",
    )
    parser.add_argument("folder", metavar="RUN", help="folder of a finished run")
    parser.add_argument("--format", choices=["bundle", "onnx", "web"], default="bundle", help="default bundle")
    parser.add_argument("-o", dest="output", metavar="DIR", required=True, help="a new folder, or an earlier export")
    add_model_options(parser)
    parser.set_defaults(run=run_export)


def add_model_options(parser: ArgumentParser) -> None:
    """Options of everything that is exported."""
    parser.add_argument(
        "--precision",
        choices=["float32", "int8"],
        default="float32",
        help="bits of item tables; int8 is a quarter of the size (default float32)",
    )
    parser.add_argument(
        "--titles", metavar="FILE", help=".csv or .parquet with columns item and title; else those of the run"
    )


def open_titled(args: Namespace) -> Result:
    """The run, with titles from a file where one is given."""
    from fedrecgel.runs.result import open_run  # here, because it imports torch

    with warnings_as_sentences():
        run = open_run(args.folder)
        return run if args.titles is None else run.with_titles(args.titles)


def run_export(args: Namespace) -> int:
    """Write the folder and say what is in it."""
    folder = writable(args.output, "-o")
    from fedrecgel.export.bundle import write_bundle, write_onnx, write_web  # here, because they import torch

    run = open_titled(args)
    if args.format == "onnx":
        written = write_onnx(run, folder, run.item_titles)
    else:
        written = (write_web if args.format == "web" else write_bundle)(run, folder, run.item_titles, args.precision)
    for name, size in sorted(written.files.items(), key=lambda entry: -entry[1]):
        print(f"{size / 1e3:>12,.1f} kB  {name}")
    whole = f"{written.n_bytes / 1e6:.2f} MB in {len(written.files)} files"
    print(f"{whole} are in {folder}. No user's history or vector is among them.")
    if args.format == "web":
        print("Host the folder with any web server, or look at it with `fedrecgel serve RUN`.")
    return 0
