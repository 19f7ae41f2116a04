"""The `fedrecgel` command."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version

from fedrecgel.cli import bench, data, doctor, experiment, methods, node, recommend, report, train, tune
from fedrecgel.cli.common import INTERRUPTED
from fedrecgel.errors import FedrecgelError

EPILOG = """\
first steps:
  fedrecgel train                            a federated recommender on generated data, in under a minute
  fedrecgel data list                        the data sets; `data audit NAME` shows their traps
  fedrecgel methods fedrecgel                what a method does, its settings, what leaves the device
  fedrecgel train --dataset mine.csv         your own interactions

--debug anywhere on the line shows the traceback of an error.
"""


def parser() -> argparse.ArgumentParser:
    """All commands."""
    top = argparse.ArgumentParser(
        prog="fedrecgel",
        description="Federated recommendation: recommenders trained while every user's clicks stay on the device.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"fedrecgel {version('fedrecgel')}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (train, tune, recommend, experiment, report, data, methods, node, bench, doctor):
        module.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; exit code 2 for wrong input, 1 for a failed run, 130 for Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words  # anywhere on the line, so it is taken out before parsing
    args = parser().parse_args([word for word in words if word != "--debug"])
    try:
        code: int = args.run(args)
    except FedrecgelError as error:
        _tell(str(error), debug=debug)
        return error.exit_code
    except KeyboardInterrupt:
        _tell("interrupted", debug=debug)
        return INTERRUPTED
    except BrokenPipeError:  # `fedrecgel … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        text = f"unexpected {type(error).__name__}: {error}. Run again with --debug for the traceback."
        _tell(text, debug=debug)
        return 1
    return code


def _tell(text: str, *, debug: bool) -> None:
    """What went wrong, or where."""
    if debug:
        traceback.print_exc()
    else:
        print(f"fedrecgel: {text}", file=sys.stderr)
