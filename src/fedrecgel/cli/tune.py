"""`fedrecgel tune`: search hyper-parameters on the validation items, watched."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from fedrecgel.cli.common import INTERRUPTED, add_columns_option, add_set_option, assignments_of, writable
from fedrecgel.errors import ConfigError
from fedrecgel.runs.acceleration import prepare
from fedrecgel.runs.config import Config
from fedrecgel.runs.progress import describe_loss
from fedrecgel.runs.reference import WITHHELD, has_reference
from fedrecgel.runs.train import load_split
from fedrecgel.search.space import Space, read_search
from fedrecgel.search.trials import SearchFolder, Trial, best_of
from fedrecgel.search.tune import for_search, popularity, search, searched_metric

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]

TRIALS = 20

EPILOG = """\
examples:
  fedrecgel tune --dataset mine.csv                          FedRecGEL on an own file
  fedrecgel tune --dataset filmtrust --method fedmf --trials 8

CONFIG.toml is a config as for `train`. It may say what to try; else the method's default space is searched:

  [search]
  "method.server_lr" = {low = 1e-4, high = 1e-1, log = true}
  "method.fraction" = [0.1, 0.5, 1.0]

With --jobs N, trial n learns from trials 0 … n - N, whoever else has finished: the same command finds the same.
The same command again goes on where a search was stopped; a larger --trials continues a finished one.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add `tune`."""
    parser = subparsers.add_parser(
        "tune",
        help="search hyper-parameters on validation items",
        description="Try hyper-parameters and keep the best on the validation items; test items are not looked at.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG.toml", help="settings and, if wanted, a table [search]")
    parser.add_argument("--dataset", metavar="NAME|PATH", help="a name of `fedrecgel data list`, or a file")
    parser.add_argument("--method", metavar="NAME", help="a name of `fedrecgel methods`, or FILE.py:CLASS")
    parser.add_argument("--rounds", type=int, metavar="N", help="communication rounds of every trial")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything but the split")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N", help=f"trials in all (default {TRIALS})")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trials at the same time (default 1)")
    parser.add_argument("--out", metavar="DIR", help="folder (default runs/tune-<dataset>-<method>-s<seed>)")
    add_columns_option(parser)
    add_set_option(parser)
    parser.set_defaults(run=run_tune)


def run_tune(args: Namespace) -> int:
    """Search, then show every trial beside popularity."""
    if args.trials < 1:
        raise ConfigError(f"--trials should be at least 1. Found {args.trials}.")
    if args.jobs < 1:
        raise ConfigError(f"--jobs should be at least 1. Found {args.jobs}.")
    if args.config is None and args.dataset is None:
        raise ConfigError("A search needs data: fedrecgel tune --dataset NAME|PATH, or a CONFIG.toml.")
    config, space = read_search(args.config and Path(args.config), assignments_of(args))
    config = for_search(config)
    folder = SearchFolder(writable(args.out or Path("runs") / f"tune-{config.default_out.name}"))
    done = folder.claim(config, space)
    if done:
        _say(f"{len(done)} trials are on record in {folder.path}")
    split = load_split(config)
    prepare([config])
    progress = TrialProgress(config, args.trials)
    try:
        for trial in search(config, space, split, folder, trials=args.trials, jobs=args.jobs, watch=progress.watch):
            done.append(trial)
            progress.close()
            _say(f"{len(done):>3}/{args.trials}  {_outcome(trial, config)}  {_values(trial, space)}")
    except KeyboardInterrupt:
        progress.close()
        _say(f"Stopped with {len(done)} of {args.trials} trials on record. Continue with the same command.")
        return INTERRUPTED
    print(trial_table(config, space, done, popularity(config, split) if has_reference(config) else None))
    print(f"\nTrain with the best values: fedrecgel train {folder.best}")
    return 0


class TrialProgress:
    """A bar per trial on a terminal; in a pipe the line of each finished trial is enough."""

    def __init__(self, config: Config, trials: int) -> None:
        self.config, self.trials = config, trials
        self.bar: Any = None
        self.latest = ""

    def watch(self, number: int, line: dict[str, Any]) -> None:
        """Show a finished round."""
        if not sys.stderr.isatty():
            return
        if self.bar is None:
            title = f"{number + 1:>3}/{self.trials}  trial {number}"
            self.bar = tqdm(total=self.config.run.rounds, desc=title, unit="round", dynamic_ncols=True, leave=False)
        metric = searched_metric(self.config)
        if metric in line:
            self.latest = f"validation {metric} {100 * line[metric]:.2f}"
        self.bar.set_postfix_str(f"{describe_loss(line)}{self.latest}", refresh=False)
        self.bar.update()

    def close(self) -> None:
        """Make room for the line of the trial."""
        if self.bar is not None:
            self.bar.close()
        self.bar, self.latest = None, ""


def trial_table(config: Config, space: Space, trials: Sequence[Trial], reference: dict[str, float] | None) -> str:
    """Every trial, best first; metrics in percent on the validation items."""
    names = [searched_metric(config), f"HR@{max(config.evaluation.ks)}"]
    keys = [key.removeprefix("method.") for key in space]
    widths = [max(10, len(key) + 2) for key in keys]
    head = f"{'trial':<12}" + "".join(f"{name:>9}" for name in names) + f"{'round':>7}{'seconds':>9}  {'state':<9}"
    lines = ["on the validation items", head + "".join(f"{k:>{w}}" for k, w in zip(keys, widths, strict=True))]
    if reference is not None:
        lines.append(f"{'popularity':<12}" + "".join(f"{100 * reference[name]:>9.2f}" for name in names))
    best = best_of(trials)
    for trial in sorted(trials, key=lambda one: (one is not best, -one.score if one.validation else 1, one.number)):
        mark = f"{trial.number}{' (own)' if trial.number == 0 else ''}{' *' if trial is best else ''}"
        found = trial.validation
        metrics = "".join(f"{100 * found[name]:>9.2f}" if found else f"{'-':>9}" for name in names)
        shown = [f"{_short(trial.parameters.get(key)):>{width}}" for key, width in zip(space, widths, strict=True)]
        row = f"{mark:<12}{metrics}{trial.best_round or '-':>7}{trial.seconds:>9.1f}  {trial.state:<9}"
        lines.append(row + "".join(shown))
    lines += [] if reference is not None else [WITHHELD]
    return "\n".join(lines)


def _outcome(trial: Trial, config: Config) -> str:
    """What came of a trial, in a few words."""
    metric = searched_metric(config)
    reached = f": {trial.reason}" if trial.validation is None else f"  {metric} {100 * trial.validation[metric]:.2f}"
    return f"trial {trial.number} {trial.state}{reached}"


def _values(trial: Trial, space: Space) -> str:
    return "  ".join(f"{key.removeprefix('method.')}={_short(trial.parameters.get(key))}" for key in space)


def _short(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
