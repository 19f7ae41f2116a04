"""What several commands share: options that become a config, and field docstrings for help texts."""

from __future__ import annotations

import os
import sys
import textwrap
import warnings
from argparse import ArgumentParser, Namespace, _ActionsContainer
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from fedrecgel.errors import ConfigError

if TYPE_CHECKING:
    from fedrecgel.runs.config import Config

INTERRUPTED = 130
"""Exit code of a command stopped by Ctrl-C, as shells have it."""

FLAGS = {
    "dataset": ("data", "name"),
    "data_dir": ("data", "dir"),
    "columns": ("data", "columns"),
    "method": ("method", "name"),
    "rounds": ("run", "rounds"),
    "seed": ("run", "seed"),
    "device": ("run", "device"),
    "engine": ("run", "engine"),
    "channel": ("run", "channel"),
    "start": ("run", "start"),
}
"""Options that are short for a setting."""


def add_config_options(parser: ArgumentParser) -> None:
    """Add CONFIG.toml, and `--config`, which also takes the word `tuned`."""
    given = parser.add_mutually_exclusive_group()
    given.add_argument("config", nargs="?", metavar="CONFIG.toml", help="settings; flags and --set come on top")
    given.add_argument(
        "--config",
        dest="config_option",
        metavar="tuned|FILE",
        help="the same; tuned: what a search found for this method on this data set, which the package brings",
    )


def add_set_option(parser: _ActionsContainer) -> None:
    """Add `--set section.key=value`."""
    parser.add_argument(
        "--set", dest="assignments", metavar="SECTION.KEY=VALUE", action="append", default=[], help="any setting"
    )


def add_columns_option(parser: _ActionsContainer) -> None:
    """Add `--columns`."""
    parser.add_argument(
        "--columns", metavar="A,B,…", help="columns of a text file without a header, as in user,item,rating,timestamp"
    )


def writable(folder: str | Path, option: str = "--out") -> Path:
    """A folder that can be made and written to, as far as can be told before anything is computed.

    Raises:
        ConfigError: it is a file, lies in one, or belongs to somebody else.
    """
    path = Path(folder)
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ConfigError(f"{option} should be a folder that can be written. Found '{folder}'.")
    return path


def config_of(args: Namespace) -> Config:
    """Defaults, then the config file, then flags, then --set."""
    from fedrecgel.runs.config import read_config  # here, because it imports torch

    given = assignments_of(args)
    return read_config(config_path(args, given), given)


def assignments_of(args: Namespace) -> list[tuple[str, str, object]]:
    """What flags and --set give, as (section, key, value)."""
    from fedrecgel.runs.config import parse_assignment

    given = [(*FLAGS[flag], value) for flag, value in vars(args).items() if flag in FLAGS and value is not None]
    return given + [parse_assignment(text) for text in getattr(args, "assignments", [])]


def config_path(args: Namespace, given: Sequence[tuple[str, str, object]]) -> Path | None:
    """The file that CONFIG.toml or `--config` names, if one is given."""
    from fedrecgel.runs.shipped import TUNED, tuned_config

    named = getattr(args, "config_option", None) or getattr(args, "config", None)
    if named == TUNED and getattr(args, "config_option", None):
        chosen = {(section, key): str(value) for section, key, value in given}
        return tuned_config(chosen.get(("data", "name"), "demo"), chosen.get(("method", "name"), "fedrecgel"))
    return Path(named) if named else None


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Print what is warned of inside as people read it, on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(warning.message) for warning in caught):
                print(text, file=sys.stderr)


def field_docs(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, bases included; Python itself throws these away."""
    import ast  # here, as these two take a good part of what `fedrecgel --help` may take
    import inspect

    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__ == "builtins":
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for statement, following in pairwise(statements):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = inspect.cleandoc(text).replace("\n", " ")
    return docs


def describe_fields(kind: type, prefix: str = "") -> str:
    """Every field of a dataclass with its default and docstring, for people."""
    docs = field_docs(kind)
    lines = []
    for entry in fields(kind):
        default = entry.default if entry.default is not MISSING else None
        shown = "" if default is None else f" = {default}"
        text = textwrap.fill(docs.get(entry.name, ""), 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
        lines.append(f"    {prefix}{entry.name}{shown}\n{text}")
    return "\n".join(lines)
