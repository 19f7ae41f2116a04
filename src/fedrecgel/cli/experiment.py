"""`fedrecgel experiment`: every registered experiment, planned, run and reduced."""

from __future__ import annotations

import shlex
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fedrecgel.cli.common import INTERRUPTED, add_set_option, writable
from fedrecgel.cli.console import Console, describe_plan, duration, probed_plan
from fedrecgel.data.load import NAMES
from fedrecgel.errors import ConfigError, RunFolderError
from fedrecgel.methods import METHODS, find_method
from fedrecgel.runs.acceleration import prepare
from fedrecgel.runs.config import parse_assignment
from fedrecgel.runs.shipped import shipped_configs
from fedrecgel.studies import EXPERIMENTS
from fedrecgel.studies.experiment import Experiment, Scope, names_in
from fedrecgel.studies.plan import Plan, carry_out, record_finished
from fedrecgel.studies.presets import SETTINGS, Presets, Setting
from fedrecgel.studies.records import ResultsLog
from fedrecgel.studies.surroundings import describe_data, describe_environment, describe_users
from fedrecgel.studies.workers import run_tasks, stop_on_interrupt

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]

CONFIGS, OUT = "configs", "results"
EPILOG = """\
settings:
  published  the released defaults; FedRecGEL's radii from configs/<dataset>.toml
  tuned      configs/<dataset>/<method>.toml where it exists, else as published
  long       half of the clients per round, server rate 0.005 if it has one, 200 rounds: long enough to overfit

Runs are shared between experiments of one --out folder and found again by their settings: the same command goes on
where it was stopped. `fedrecgel report DIR` makes the page, tables and figures.

examples:
  fedrecgel experiment main-table --datasets demo --seeds 2 --rounds 20
  fedrecgel experiment main-table --datasets filmtrust,amazon-video --jobs 2 --plan
  fedrecgel experiment sensitivity --datasets filmtrust --seeds 3 --settings long
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add `experiment` and its kinds."""
    parser = subparsers.add_parser(
        "experiment",
        help="repeat the paper's experiments",
        description="Plan, run and reduce one of the paper's four experiments, or measure what quirks are worth, or "
        "what privacy costs.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="experiment", metavar="|".join(EXPERIMENTS), required=True)
    for name, kind in EXPERIMENTS.items():
        chosen = kinds.add_parser(name, help=kind.help, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter)
        _add_options(chosen, kind)
        chosen.set_defaults(run=run_experiment)


def _add_options(parser: ArgumentParser, kind: type[Experiment]) -> None:
    add = parser.add_argument
    add("--datasets", metavar="A,B", default="demo", help=f"of {', '.join(NAMES)}; or files, as in mine.csv")
    add("--methods", metavar="A,B", help=f"of {', '.join(kind.methods or METHODS)} (default: all)")
    for own in kind.options:
        add(own.flag, metavar=own.metavar, help=own.help, default=own.default, type=type(own.default or ""))
    if kind.settings is not None:
        add("--settings", default=kind.settings, metavar="NAME", help=f"of {', '.join(SETTINGS)}")
    seeds = kind.usual_seeds
    add("--seeds", type=int, default=seeds, metavar="N", help=f"seeds 0 … N-1 (default {seeds})")
    add("--rounds", type=int, metavar="N", help="rounds of every federated method")
    add("--out", default=OUT, metavar="DIR", help=f"experiments' folder (default {OUT})")
    add(
        "--configs",
        default=CONFIGS,
        metavar="DIR",
        help=f"folder of configs (default {CONFIGS}, else those of the package)",
    )
    add("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
    add("--jobs", type=int, default=1, metavar="N", help="runs at the same time (default 1)")
    add("--plan", action="store_true", help="say what would be run and how long, after short probes")
    add("--finished", action="store_true", help="run nothing: tables of what is finished, while the rest may run")
    add("--keep-models", action="store_true", help="also of methods nothing is measured on; some weigh gigabytes")
    add("--quiet", action="store_true", help="print nothing but errors")
    add_set_option(parser)


def run_experiment(args: Namespace) -> int:
    """Plan, run what is missing, reduce, print the table."""
    if min(args.seeds, args.jobs) < 1:
        raise ConfigError(f"--seeds and --jobs should be at least 1. Found {args.seeds} and {args.jobs}.")
    experiment, root = experiment_of(args), writable(args.out)
    plan = Plan.of(root, experiment.configs())
    console = Console(len(plan.missing), args.jobs, args.quiet)
    console.say(describe_plan(plan, args.jobs))
    if args.plan:
        print(probed_plan(plan, args.jobs))
        return 0
    describe_environment(root)
    describe_data(root, experiment.configs())
    describe_users(root, experiment.configs())
    started = time.perf_counter()
    stopped = False
    if args.finished:
        if len(plan.missing) == len(plan.jobs):
            raise RunFolderError(
                f"--finished makes tables of finished runs. Found none of this experiment in '{root}'."
            )
        record_finished(plan)
    else:
        stopped = _run_missing(experiment, plan, args, console)
    document = experiment.reduce(root, ResultsLog(root).read(), _command(args))
    path = root / f"{experiment.name}.json"
    document.write(path)
    if stopped:
        console.say("Stopped. The same command goes on from here; finished runs are kept.")
        return INTERRUPTED
    if not args.quiet:
        print(document.text())
        page = f"fedrecgel report {shlex.quote(str(root))}"
        print(f"\n{duration(time.perf_counter() - started)}; results are in {path}. Make the page with: {page}")
    return 1 if console.failed else 0


def _run_missing(experiment: Experiment, plan: Plan, args: Namespace, console: Console) -> bool:
    """Train and measure what is not there yet; whether the user stopped it."""
    prepare(job.config for job in plan.missing)
    with stop_on_interrupt(console.say) as stop:
        carry_out(plan, args.jobs, stop, console.watch, keep_models=args.keep_models)
        measurements = experiment.measurements(plan.root)
        console.restart(len(measurements))
        for outcome in run_tasks(measurements, args.jobs, stop):
            console.watch(outcome)
        return stop.is_set()


def experiment_of(args: Namespace) -> Experiment:
    """What the options describe."""
    kind = EXPERIMENTS[args.experiment]
    configs = Path(args.configs)
    if not configs.is_dir():
        if args.configs != CONFIGS:
            raise ConfigError(f"--configs should name a folder. Found none at '{args.configs}'.")
        configs = shipped_configs()
    presets = Presets(configs, args.rounds, args.data_dir, tuple(map(parse_assignment, args.assignments)))
    datasets = names_in("data set", args.datasets, [*NAMES, *(n for n in args.datasets.split(",") if Path(n).suffix)])
    settings = () if kind.settings is None else names_in("setting", args.settings, SETTINGS)
    options = {own.name: getattr(args, own.name) for own in kind.options}
    chosen = tuple(cast("Setting", name) for name in settings)
    return kind(Scope(presets, datasets, args.seeds, chosen, _methods(kind, args.methods), options))


def _methods(kind: type[Experiment], text: str | None) -> tuple[str, ...]:
    """The methods of a list, or all the experiment can be made of."""
    if kind.methods is not None:
        return names_in(f"method of '{kind.name}'", text or ",".join(kind.methods), kind.methods)
    names = [name.strip() for name in text.split(",")] if text else list(METHODS)
    for name in names:
        find_method(name)
    return tuple(dict.fromkeys(names))


def _command(args: Namespace) -> str:
    """The command with the options that shape its numbers, so that a reader can repeat them."""
    kind = EXPERIMENTS[args.experiment]
    usual: dict[str, str | int | None] = {"methods": None, "settings": kind.settings, "rounds": None}
    usual |= {own.name: own.default for own in kind.options}
    usual |= {"configs": CONFIGS, "out": OUT}
    words = ["fedrecgel", "experiment", args.experiment, "--datasets", args.datasets, "--seeds", str(args.seeds)]
    for name, default in usual.items():
        value = getattr(args, name, None)
        if value is not None and value != default:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for text in args.assignments:
        words += ["--set", text]
    return shlex.join(words)
