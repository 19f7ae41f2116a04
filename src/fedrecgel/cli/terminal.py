"""What a terminal is told: text only, whoever wrote the names in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from fedrecgel.display.text import visible

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class PlainStream:
    r"""A stream that writes control characters out (`\u001b`): ids, names and paths may hold any.

    Line ends, tabs and carriage returns pass, which tables and bars need; the colours of Flower's log are dropped.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text without its invisible characters."""
        self.stream.write(visible(COLOURS.sub("", text)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Print through plain streams inside."""
    out, err = (cast("TextIO", PlainStream(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield
