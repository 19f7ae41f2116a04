"""The parser of all commands: errors with the usage they belong to, the nearest name, headings in colour."""

from __future__ import annotations

import argparse
import os
import re
import sys
from difflib import get_close_matches
from typing import Any

from fedrecgel.errors import unknown

BOLD, CYAN, RESET = "\x1b[1m", "\x1b[36m", "\x1b[0m"
HEADING = re.compile(r"^(usage:|\S[^:\n]*:$)", re.MULTILINE)
NAMED = re.compile(r"^( {2,4})((?:-\S+(?:, )?)+|[^\s-]\S*(?=  |$))", re.MULTILINE)
"""What a line of a list explains: an option with its short form, or a command."""


class Parser(argparse.ArgumentParser):
    """One that refuses an unknown option itself, with the usage of the command it was given to."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """All words, or an error that names the nearest option."""
        found, unknown_words = super().parse_known_args(args, namespace)
        if unknown_words:
            word = unknown_words[0]
            near = get_close_matches(word.partition("=")[0], self._option_string_actions, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown_words)}.{hint}")
        return found, unknown_words

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is no choice, and name the nearest one."""
        if action.choices is not None and value not in action.choices:
            kind = "command" if isinstance(action, argparse._SubParsersAction) else "value"
            raise argparse.ArgumentError(None, unknown(kind, str(value), map(str, action.choices)))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help in colour where a person reads it; `NO_COLOR` and pipes get plain text."""
        stream = getattr(file, "stream", file)  # below what takes colours out of other people's text
        if message and stream is not None and takes_colour(stream):
            stream.write(coloured(message))
        else:
            super()._print_message(message, file)


def takes_colour(stream: Any) -> bool:
    """Whether a person with a colour terminal reads this stream."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str) -> str:
    """Help with headings in bold, and options and commands in colour."""
    named = NAMED.sub(rf"\g<1>{CYAN}\g<2>{RESET}", text)
    return HEADING.sub(rf"{BOLD}\g<1>{RESET}", named)


class ShowVersion(argparse.Action):
    """`--version`: looked up when asked for, as that takes longer than the help itself."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the version and leave."""
        from importlib.metadata import version

        print(f"fedrecgel {version('fedrecgel')}", file=sys.stdout)
        parser.exit()
