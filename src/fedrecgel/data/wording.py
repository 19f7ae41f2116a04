"""Errors in the words of whoever asked: settings on the command line, arguments in Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fedrecgel.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

ARGUMENTS = (
    *("name", "dir", "columns", "user", "item", "timestamp", "rating", "title", "min_interactions", "min_rating"),
    *("distinct", "users", "items", "interactions", "seed", "ties", "untimed", "validation", "candidates", "kind"),
    *("n", "share", "test"),
)
"""Settings of [data] and [split], which functions take as arguments."""


def in_python(text: str) -> str:
    """A message with arguments in the place of flags and settings.

    >>> in_python("Name the column with --set data.item=… or lower data.min_interactions.")
    'Name the column with item="…" or lower min_interactions.'
    """
    text = re.sub(r"--set (?:data|split)\.(\w+)=(\S+)", r'\1="\2"', text)
    text = re.sub(r"--columns ([\w-]\S*,\S+)", r'columns="\1"', text)
    text = text.replace("--columns", "columns").replace("--data-dir", "data_dir")
    return re.sub(rf"(?<![\w./\\'])(?:data|split)\.({'|'.join(ARGUMENTS)})\b", r"\1", text)


def speaks_python(function: Callable[P, R]) -> Callable[P, R]:
    """Let wrong input name arguments of the function, not settings."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            raise type(error)(in_python(str(error))) from error

    return wrapped
