"""`fedrecgel train`: its options. What it does is in `cli/train_run.py`, as the help need not wait for torch."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING

from fedrecgel.cli.common import add_columns_option, add_config_options, add_set_option

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]

EPILOG = """\
examples:
  fedrecgel train --dataset filmtrust --method fedncf --seed 1
  fedrecgel train --dataset filmtrust --method fedmf --config tuned    with the values a search found
  fedrecgel train --set method.rho_co=0.05 --set evaluation.every=5 --out runs/wider
  fedrecgel train runs/wider/config.toml --out runs/again              the same run, bit for bit

`fedrecgel config` lists every setting, `fedrecgel methods NAME` the hyper-parameters of a method.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add `train`."""
    parser = subparsers.add_parser(
        "train",
        help="train and evaluate a method",
        description="Train a federated recommender and evaluate it beside popularity.\n"
        "Without options: FedRecGEL on the generated data set `demo`.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add_config_options(parser)
    what = parser.add_argument_group("what")
    what.add_argument("--dataset", metavar="NAME|PATH", help="a name of `fedrecgel data list`, or a file")
    what.add_argument("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
    add_columns_option(what)
    what.add_argument("--titles", metavar="FILE", help=".csv or .parquet with columns item and title, kept in the run")
    what.add_argument("--method", metavar="NAME", help="a name of `fedrecgel methods`, or FILE.py:CLASS")
    what.add_argument("--rounds", type=int, metavar="N", help="communication rounds")
    what.add_argument("--seed", type=int, metavar="N", help="seed of everything but the split")
    add_set_option(what)
    where = parser.add_argument_group("where")
    where.add_argument("--out", metavar="DIR", help="run folder (default runs/<dataset>-<method>-s<seed>)")
    where.add_argument("--device", metavar="DEV", help="cpu, cuda, cuda:1, mps")
    where.add_argument("--engine", metavar="NAME", help="where the clients live: local, flower")
    where.add_argument(
        "--channel", metavar="NAME", help="between devices and server: plain, secagg, bfv, dp, secagg+dp, local-dp"
    )
    runs = parser.add_argument_group("other runs")
    runs.add_argument("--resume", action="store_true", help="continue an interrupted run, to the same bits")
    runs.add_argument(
        "--from", dest="start", metavar="RUN", help="go on from this finished run, with its settings; --dataset NEW"
    )
    runs.add_argument("--final", action="store_true", help="train on all interactions; nothing is measured")
    runs.add_argument(
        "--rounds-of", metavar="RUN", help="with --final: as many rounds as this finished run reports, and its settings"
    )
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--tensorboard", action="store_true", help="also log to RUN/tensorboard (extra 'report')")
    shown.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.set_defaults(run=run_train)


def run_train(args: Namespace) -> int:
    """Train, or show a run that is finished already."""
    from fedrecgel.cli.train_run import run  # here, because it imports torch

    return run(args)
