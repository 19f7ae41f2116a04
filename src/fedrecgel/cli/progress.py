"""Progress: a bar on a terminal, plain lines in a pipe, nothing when quiet; always on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

from fedrecgel.data.split import Split
from fedrecgel.methods import method_label
from fedrecgel.runs.config import Config

FIRST_LINE, NEXT_LINE = 10.0, 60.0
"""Seconds until a pipe hears how long the rest will take, and between two such lines."""


class Progress:
    """Watches one run."""

    def __init__(self, config: Config, *, quiet: bool) -> None:
        self.config, self.quiet = config, quiet
        self.bar: Any = None
        self.latest = ""

    def say(self, text: str) -> None:
        """One line, without breaking the bar."""
        if not self.quiet:
            tqdm.write(text, file=sys.stderr)

    def start(self, split: Split) -> None:
        """Name what is trained."""
        run = self.config.run
        here = f" A simulation: all clients are in this process; channel {run.channel}." * (run.engine == "local")
        self.say(
            f"{method_label(self.config.method.name)} on {self.config.data.name}: {split.n_users:,} clients, "
            f"{split.n_items:,} items, {len(split.interactions):,} interactions.{here}"
        )

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            self.bar = tqdm(total=self.config.run.rounds, unit="round", dynamic_ncols=True)
        return self

    def watch(self, line: dict[str, Any]) -> None:
        """Show a finished round."""
        evaluated = f"HR@{max(self.config.evaluation.ks)}" in line
        if evaluated:
            k = max(self.config.evaluation.ks)
            self.latest = f"HR@{k} {100 * line[f'HR@{k}']:.2f}  NDCG@{k} {100 * line[f'NDCG@{k}']:.2f}"
        text = f"{describe_loss(line)}{self.latest}"
        if self.bar is not None:
            self.bar.n = line["round"]  # a resumed run does not start at zero
            self.bar.set_postfix_str(text)
        elif evaluated:
            self.say(f"round {line['round']:>4}/{self.config.run.rounds}  {text}")
        if evaluated and line["round"] == self.config.run.rounds and self.config.evaluation.full:
            self.say("Ranking against the whole catalogue …")

    def close(self) -> None:
        """Leave the bar where it stands."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def __exit__(self, *error: object) -> None:
        self.close()


def describe_loss(line: dict[str, Any]) -> str:
    """The loss of a round, or nothing for a method that has none."""
    return "" if line["loss"] is None else f"loss {line['loss']:.4f}  "


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
