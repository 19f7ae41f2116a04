"""What the package knows about one published data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedrecgel.data.columns import Columns


class Statistics(NamedTuple):
    """Sizes after dropping users with fewer than five interactions."""

    users: int
    items: int
    interactions: int


@dataclass(frozen=True)
class Source:
    """One named data set: which file, where it comes from, how to read it, what must come out."""

    name: str
    about: str
    """One sentence for people."""
    folder: str
    file: str
    """The raw file is `<data dir>/<folder>/<file>`, named as its publisher names it."""
    sha256: str | None
    """Checksum of the raw file; None: not pinned, only the statistics are checked."""
    url: str | None
    """Where the publisher offers it; None: cannot be downloaded without a person."""
    member: str | None
    """Path of the raw file inside the archive at `url`; None: `url` is the file itself."""
    obtain: str
    """The page to visit by hand."""
    licence: str
    parse: Callable[[Path], Columns]
    expected: Statistics
    distinct: bool = False
    """Keep only the latest interaction of each user-item pair."""
