"""`fedrecgel completion`: a script with which a shell completes commands, options, names and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedrecgel.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]

SHELLS = ("bash", "zsh", "tcsh")
FILES = ("FILE", "PATH", "CONFIG.toml")
FOLDERS = ("DIR", "RUN")
EPILOG = """\
examples:
  eval "$(fedrecgel completion bash)"                                   in this shell; in ~/.bashrc for all
  fedrecgel completion bash > ~/.local/share/bash-completion/completions/fedrecgel
  fedrecgel completion zsh > ~/.zfunc/_fedrecgel                        with ~/.zfunc in fpath
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add `completion`."""
    parser = subparsers.add_parser(
        "completion",
        help="a script that completes commands in a shell",
        description="Print a script that completes commands, options, methods, data sets and files. It needs shtab.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads it")
    parser.set_defaults(run=run_completion)


def run_completion(args: Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        raise ConfigError("Completion needs the package shtab. Install it with the extra 'completion'.") from error
    from fedrecgel.channels.registry import CHANNELS
    from fedrecgel.cli.main import parser
    from fedrecgel.data.load import NAMES
    from fedrecgel.methods import METHODS

    names = {"dataset": NAMES, "method": METHODS, "channel": CHANNELS, "name": METHODS}
    whole = parser()
    for action in whole._actions:
        action.help = "" if action.help is argparse.SUPPRESS else action.help  # else shtab leaves all commands out
    for action in _actions(whole):
        shown = str(action.metavar or "")
        if action.dest in names and action.choices is None:
            action.choices = list(names[action.dest])
        elif any(word in shown for word in FILES):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif any(word in shown for word in FOLDERS):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(whole, shell=args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and argument, those of commands of commands included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _actions(one)
        else:
            yield action
