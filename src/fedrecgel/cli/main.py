"""The `fedrecgel` command."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Collection, Sequence
from importlib import import_module

from fedrecgel.cli.common import INTERRUPTED
from fedrecgel.cli.parser import Parser, ShowVersion
from fedrecgel.cli.terminal import plain_output
from fedrecgel.errors import ConfigError, FedrecgelError, unknown

COMMANDS = {
    "train": "train and evaluate a method",
    "tune": "search hyper-parameters on validation items",
    "recommend": "what a finished run recommends",
    "export": "a bundle, ONNX scorer or page of a finished run",
    "serve": "a page that recommends in the browser",
    "forget": "remove a user from a finished run",
    "experiment": "repeat the paper's experiments",
    "report": "a page, tables and figures of experiments",
    "compare": "which of some runs is better, user by user",
    "data": "list, inspect, audit, fetch and deal out data sets",
    "methods": "list methods, or explain one",
    "audit": "attack what a channel reveals of users",
    "node": "host users for a run on several machines",
    "bench": "measure a round on this machine",
    "doctor": "show versions, devices, data folders and advice",
    "config": "every setting, its default and meaning",
    "completion": "a script that completes commands in a shell",
}
"""Every command, which is a module of this folder, and its line in the help."""
GROUPS = {
    "a recommender, from data to devices": ("train", "tune", "recommend", "export", "serve", "forget", "node"),
    "experiments": ("experiment", "compare", "report", "audit", "bench"),
    "look things up": ("data", "methods", "config", "doctor", "completion"),
}
"""Commands as the help lists them."""
EPILOG = """\
first steps:
  fedrecgel train                            a federated recommender on generated data, in under a minute
  fedrecgel data list                        the data sets; `data audit NAME` shows their traps
  fedrecgel methods fedrecgel                what a method does, its settings, what leaves the device
  fedrecgel train --dataset mine.csv         your own interactions

`fedrecgel COMMAND --help` explains a command with examples, `fedrecgel config` every setting.
--debug anywhere on the line shows the traceback of an error.
"""


def parser(complete: Collection[str] = COMMANDS.keys()) -> argparse.ArgumentParser:
    """All commands; only those in `complete` get their options, for which their modules, and torch, are imported."""
    top = Parser(
        prog="fedrecgel",
        usage="fedrecgel [-h] [--version] COMMAND …",
        description="Federated recommendation: recommenders trained while every user's clicks stay on the device.\n\n"
        + "\n\n".join(_group(heading, names) for heading, names in GROUPS.items()),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="fedrecgel", help=argparse.SUPPRESS
    )
    for name, line in COMMANDS.items():
        if name in complete:
            import_module(f"fedrecgel.cli.{name}").add_parser(commands)
        else:
            commands.add_parser(name, help=line)
    return top


def _group(heading: str, names: Sequence[str]) -> str:
    lines = (f"  {name:<12}{COMMANDS[name]}" for name in names if name in COMMANDS)
    return "\n".join([f"{heading}:", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; exit code 2 for wrong input, 1 for a failed run, 130 for Ctrl-C."""
    with plain_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words  # anywhere on the line, so it is taken out before parsing
    words = [word for word in words if word != "--debug"]
    try:
        if not words:
            parser([]).print_help()
            return 0
        args = parser(_command(words)).parse_args(words)
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


def _command(words: Sequence[str]) -> list[str]:
    """The command these words begin with; none if they ask for the general help or the version."""
    if not words or words[0].startswith("-"):
        return []
    if words[0] not in COMMANDS:
        raise ConfigError(unknown("command", words[0], COMMANDS))
    return [words[0]]


def _tell(text: str, *, debug: bool) -> None:
    """What went wrong, or where."""
    if debug:
        traceback.print_exc()
    else:
        print(f"fedrecgel: {text}", file=sys.stderr)
