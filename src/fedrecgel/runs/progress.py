"""Progress: a bar on a terminal and in a notebook, plain lines in a pipe, nothing when quiet; always on stderr."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from fedrecgel.data.split import Split
from fedrecgel.methods import method_label
from fedrecgel.runs.config import Config


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
        if not self.quiet and watched():
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


def watched() -> bool:
    """Whether a person sees this: on a terminal or in a notebook."""
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    return "ipykernel" in sys.modules and shell is not None and shell.get_ipython() is not None
