"""`fedrecgel experiment`: the paper's four experiments, planned, run and reduced."""

from __future__ import annotations

import shlex
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedrecgel.cli.common import INTERRUPTED, add_set_option
from fedrecgel.data.load import NAMES
from fedrecgel.errors import ConfigError, unknown
from fedrecgel.experiments import ablation, landscape, main_table, sensitivity
from fedrecgel.experiments.config import Config, lookup, parse_assignment
from fedrecgel.experiments.execute import describe_data, describe_environment, execute, write_document
from fedrecgel.experiments.flatness import FlatnessSettings
from fedrecgel.experiments.plan import Plan, estimate, probe
from fedrecgel.experiments.presets import SETTINGS, Presets, Setting
from fedrecgel.experiments.results import ResultsLog
from fedrecgel.experiments.runner import Outcome, run_tasks, stop_on_interrupt
from fedrecgel.experiments.tasks import split_of
from fedrecgel.methods import METHODS
from fedrecgel.report.tables import ablation_text, landscape_text, main_table_text, sensitivity_text

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]

KINDS = {
    "main-table": "every method on every data set, beside popularity and the published figures",
    "sensitivity": "HR@10 and NDCG@10 over both radii",
    "ablation": "sharpness-awareness on one part, on both, on neither",
    "landscape": "the loss around the models of FedNCF and FedRecGEL",
}
SETTINGS_OF = {
    "main-table": "tuned",
    "sensitivity": "published,long",
    "ablation": "published,long",
    "landscape": "published",
}
EPILOG = """\
settings:
  published  the released defaults; FedRecGEL's radii from configs/<dataset>.toml
  tuned      configs/<dataset>/<method>.toml where it exists, else as published
  long       half of the clients per round, server rate 0.005, 200 rounds: long enough to overfit

Runs are shared between experiments of one --out folder and found again by their settings: the same command goes on
where it was stopped. `fedrecgel report DIR` makes the page, tables and figures.

examples:
  fedrecgel experiment main-table --datasets demo --seeds 2 --rounds 20
  fedrecgel experiment main-table --datasets filmtrust,amazon-video --jobs 2 --plan
  fedrecgel experiment sensitivity --datasets filmtrust --seeds 3 --settings long
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add `experiment` and its four kinds."""
    parser = subparsers.add_parser(
        "experiment",
        help="repeat the paper's experiments",
        description="Plan, run and reduce one of the paper's four experiments.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="experiment", metavar="|".join(KINDS), required=True)
    for name, text in KINDS.items():
        kind = kinds.add_parser(name, help=text, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter)
        kind.add_argument("--datasets", metavar="A,B", default="demo", help=f"of {', '.join(NAMES)}")
        if name == "main-table":
            kind.add_argument("--methods", metavar="A,B", help=f"of {', '.join(METHODS)} (default: all)")
        if name == "sensitivity":
            kind.add_argument("--grid", metavar="X,Y", help="values of the radii (default: the paper's)")
        if name == "landscape":
            _add_landscape_options(kind)
        kind.add_argument("--settings", default=SETTINGS_OF[name], metavar="NAME", help=f"of {', '.join(SETTINGS)}")
        kind.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 … N-1 (default 5)")
        kind.add_argument("--rounds", type=int, metavar="N", help="rounds of every federated method")
        kind.add_argument("--out", default="results", metavar="DIR", help="experiments' folder (default results)")
        kind.add_argument("--configs", default="configs", metavar="DIR", help="folder of configs (default configs)")
        kind.add_argument("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
        kind.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at the same time (default 1)")
        kind.add_argument("--plan", action="store_true", help="say what would be run and how long, after short probes")
        kind.add_argument("--quiet", action="store_true", help="print nothing but errors")
        add_set_option(kind)
        kind.set_defaults(run=run_experiment)


def _add_landscape_options(parser: ArgumentParser) -> None:
    usual = FlatnessSettings()
    parser.add_argument("--normalisation", choices=["unit", "filter"], default="unit", help="of the random directions")
    parser.add_argument("--grid-points", type=int, default=usual.grid, metavar="N", help="per axis of a surface")
    parser.add_argument("--clients", type=int, default=usual.clients, metavar="N", help="whose examples are the loss")


@dataclass
class _Console:
    """One line per finished run, with the time that is left."""

    total: int
    jobs: int
    quiet: bool
    done: int = 0
    failed: int = 0
    spent: float = 0.0

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def watch(self, outcome: Outcome) -> None:
        self.done += outcome.status != "interrupted"
        self.failed += outcome.status == "failed"
        self.spent += outcome.seconds
        left = (self.total - self.done) * self.spent / max(1, self.done) / self.jobs
        remark = {"finished": f"{outcome.seconds:.1f} s", "interrupted": "stopped, will be continued"}
        text = remark.get(outcome.status, f"FAILED: {outcome.message}")
        self.say(f"[{self.done}/{self.total}] {outcome.task.label}: {text}; about {_duration(left)} left")


def run_experiment(args: Namespace) -> int:
    """Plan, run what is missing, reduce, print the table."""
    presets, datasets, settings = _presets(args), _names(args.datasets, NAMES, "data set"), _settings(args)
    if min(args.seeds, args.jobs) < 1:
        raise ConfigError(f"--seeds and --jobs should be at least 1. Found {args.seeds} and {args.jobs}.")
    root = Path(args.out)
    planned = _planned(args, presets, datasets, settings)
    configs = _configs(planned)
    plan = Plan.of(root, configs)
    console = _Console(len(plan.missing), args.jobs, args.quiet)
    console.say(describe_plan(plan, args.jobs))
    if args.plan:
        print(_probed(plan, args.jobs))
        return 0
    describe_environment(root)
    describe_data(root, configs)
    started = time.perf_counter()
    with stop_on_interrupt(console.say) as stop:
        execute(plan, args.jobs, stop, console.watch)
        if args.experiment == "landscape" and not stop.is_set():
            console.failed += _measure(root, planned, console, args.jobs, stop)
        stopped = stop.is_set()
    command = shlex.join(["fedrecgel", "experiment", args.experiment, *_words(args)])
    table = _reduce(args, root, planned, command)
    if stopped:
        console.say("Stopped. The same command goes on from here; finished runs are kept.")
        return INTERRUPTED
    if not args.quiet:
        print(table)
        print(
            f"\n{_duration(time.perf_counter() - started)}; results in {root / (args.experiment + '.json')}. "
            f"Make the page with: fedrecgel report {shlex.quote(str(root))}"
        )
    return 1 if console.failed else 0


def _planned(args: Namespace, presets: Presets, datasets: list[str], settings: list[Setting]) -> list[Any]:
    if args.experiment == "main-table":
        methods = _names(args.methods, METHODS, "method") if args.methods else list(METHODS)
        if len(settings) != 1:
            raise ConfigError(f"The main table takes one of the settings {', '.join(SETTINGS)}. Found {args.settings}.")
        return list(main_table.entries(presets, datasets, methods, args.seeds, settings[0]))
    if args.experiment == "sensitivity":
        grid = [float(value) for value in args.grid.split(",")] if args.grid else sensitivity.GRID
        return list(sensitivity.entries(presets, datasets, settings, args.seeds, grid))
    if args.experiment == "ablation":
        return list(ablation.entries(presets, datasets, settings, args.seeds))
    flatness = FlatnessSettings(normalisation=args.normalisation, grid=args.grid_points, clients=args.clients)
    return list(landscape.plan(presets, datasets, settings, args.seeds, flatness))


def _configs(planned: list[Any]) -> list[Config]:
    """The configs of every run of a plan."""
    configs: list[Config] = []
    for item in planned:
        if isinstance(item, landscape.Planned):
            configs.append(item.job.config)
            continue
        entry = item[1] if isinstance(item, tuple) else getattr(item, "entry", item)
        configs += [origin.config for origin in entry.origins]
    return configs


def _reduce(args: Namespace, root: Path, planned: list[Any], command: str) -> str:
    """Write <experiment>.json and return the table for people."""
    records = ResultsLog(root).read()
    path = root / f"{args.experiment}.json"
    if args.experiment == "main-table":
        table = main_table.reduce(root, planned, records, command, args.settings)
        write_document(path, table)
        return main_table_text(table)
    if args.experiment == "sensitivity":
        curves = sensitivity.reduce(root, planned, records, command)
        write_document(path, curves)
        return sensitivity_text(curves)
    if args.experiment == "ablation":
        variants = ablation.reduce(root, planned, records, command)
        write_document(path, variants)
        return ablation_text(variants)
    measured = landscape.reduce(root, planned, records, command)
    write_document(path, measured)
    return landscape_text(measured)


def _measure(root: Path, planned: list[landscape.Planned], console: _Console, jobs: int, stop: Any) -> int:
    """Measure the landscapes that are not there yet; returns how many failed."""
    ready = [item for item in planned if item.job.finished(root) and not (root / item.file).exists()]
    console.total, console.done, console.spent, failed = len(ready), 0, 0.0, 0
    for outcome in run_tasks([item.task(root) for item in ready], jobs, stop):
        console.watch(outcome)
    return failed


def describe_plan(plan: Plan, jobs: int) -> str:
    """How many runs, how many finished, how long the rest may take by what earlier runs took."""
    missing = plan.missing
    text = f"{len(plan.jobs)} runs, {len(plan.jobs) - len(missing)} of them finished before."
    if missing:
        guess = estimate(missing, ResultsLog(plan.root).read().values())
        text += f" The rest takes about {_duration(guess.seconds / jobs)}" if guess.seconds else ""
        if guess.unknown:
            known = ", not counting" if guess.seconds else " Not timed yet:"
            text += f"{known} {', '.join(guess.unknown)}"
        text += "."
    return text


def _probed(plan: Plan, jobs: int) -> str:
    """The plan in a table, timed by the first rounds of each method on each data set."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for job in plan.missing:
        groups.setdefault((job.config.data.name, job.config.method.name), []).append(job)
    lines, total = [f"{'data set':<22}{'method':<14}{'runs':>6}{'rounds':>10}{'s per run':>12}"], 0.0
    for (dataset, method), jobs_of in groups.items():
        config = jobs_of[0].config
        found = probe(jobs_of[0], split_of(config.data, config.split))
        total += (found or 0.0) * len(jobs_of)
        shown = "failed" if found is None else f"{found:.1f}"
        rounds = "/".join(str(count) for count in sorted({job.config.run.rounds for job in jobs_of}))
        lines.append(f"{dataset:<22}{method:<14}{len(jobs_of):>6}{rounds:>10}{shown:>12}")
    return "\n".join([*lines, f"about {_duration(total)} on one process, {_duration(total / jobs)} with --jobs {jobs}"])


def _presets(args: Namespace) -> Presets:
    overrides = tuple(parse_assignment(text) for text in args.assignments)
    return Presets(Path(args.configs), args.rounds, args.data_dir, overrides)


def _settings(args: Namespace) -> list[Setting]:
    found = _names(args.settings, SETTINGS, "setting")
    return [cast("Setting", name) for name in found]


def _names(text: str, valid: Any, kind: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if kind != "data set" or not Path(name).suffix:
            lookup(kind, name, {key: key for key in valid})
    if not names:
        raise ConfigError(unknown(kind, text, valid))
    return names


def _words(args: Namespace) -> list[str]:
    """The options that shape the numbers, so that a reader can repeat them."""
    usual = {"configs": "configs", "settings": SETTINGS_OF[args.experiment], "normalisation": "unit"}
    words = ["--datasets", args.datasets, "--seeds", str(args.seeds)]
    for flag in ("methods", "settings", "rounds", "grid", "grid_points", "clients", "normalisation", "configs"):
        value = getattr(args, flag, None)
        if value is not None and value != usual.get(flag):
            words += [f"--{flag.replace('_', '-')}", str(value)]
    for text in args.assignments:
        words += ["--set", text]
    return words


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
