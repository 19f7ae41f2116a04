"""Progress over users: a bar on a terminal, a line now and then in a pipe; always on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

from fedrecgel.runs.progress import Progress

FIRST_LINE, NEXT_LINE = 10.0, 60.0
"""Seconds until a pipe hears how long the rest will take, and between two such lines."""


class UserProgress:
    """How many users are done, and how long the others will take."""

    def __init__(self, n_users: int) -> None:
        self.n_users = n_users
        self.bar: Any = None

    def begin(self, done: int) -> None:
        """So many users were done before; the clock starts."""
        self._before, self._done, self._started = done, done, time.monotonic()
        self._next_line = self._started + FIRST_LINE
        if sys.stderr.isatty():
            self.bar = tqdm(total=self.n_users, initial=done, unit="user", dynamic_ncols=True)
        elif done:
            self._say(f"{done:,} of {self.n_users:,} users were done before")

    def advance(self, users: int) -> None:
        """So many more are done."""
        self._done, now = self._done + users, time.monotonic()
        if self.bar is not None:
            self.bar.update(users)
        elif now >= self._next_line:
            left = (now - self._started) / (self._done - self._before) * (self.n_users - self._done)
            self._say(f"{self._done:,} of {self.n_users:,} users, {tqdm.format_interval(left)} left")
            self._next_line = now + NEXT_LINE

    def close(self) -> None:
        """Leave the bar where it stands."""
        if self.bar is not None:
            self.bar.close()

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class CatalogueProgress:
    """The ranking of the whole catalogue, for the method and then for popularity."""

    def __init__(self, before: Progress) -> None:
        self._before, self._users = before, UserProgress(0)
        self._done = 0

    def __call__(self, done: int, clients: int) -> None:
        """Everything is ranked for so many clients of so many."""
        if self._before.quiet:
            return
        if not self._done:
            self._before.close()
            self._users = UserProgress(clients)
            self._users.begin(0)
        self._users.advance(done - self._done)
        self._done = done
        if done == clients:
            self._users.close()
            self._done = 0


def describe_seconds(seconds: float) -> str:
    """A time as people say it."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
