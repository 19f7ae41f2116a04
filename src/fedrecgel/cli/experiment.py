"""`fedrecgel experiment`: the paper's four experiments and one on quirks, planned, run and reduced."""

from __future__ import annotations

import shlex
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from fedrecgel.cli.common import INTERRUPTED, add_set_option, writable
from fedrecgel.cli.console import Console, describe_plan, duration, probed_plan
from fedrecgel.data.load import NAMES
from fedrecgel.errors import ConfigError
from fedrecgel.methods import METHODS
from fedrecgel.report.tables import as_text
from fedrecgel.runs.config import lookup, parse_assignment
from fedrecgel.studies import ablation, sensitivity
from fedrecgel.studies.ablation import AblationExperiment
from fedrecgel.studies.experiment import (
    Experiment,
    describe_data,
    describe_environment,
    execute,
    record_finished,
    write_document,
)
from fedrecgel.studies.landscape import METHODS_COMPARED, LandscapeExperiment
from fedrecgel.studies.main_table import MainTableExperiment
from fedrecgel.studies.plan import Plan
from fedrecgel.studies.presets import SETTINGS, Presets, Setting
from fedrecgel.studies.quirks import KINDS as QUIRK_ROWS
from fedrecgel.studies.quirks import QuirksExperiment
from fedrecgel.studies.records import ResultsLog
from fedrecgel.studies.sensitivity import GRID, SensitivityExperiment
from fedrecgel.studies.workers import run_tasks, stop_on_interrupt
from fedrecgel.theory.flatness import FlatnessSettings, Normalisation

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]

CONFIGS = "configs"
KINDS = {
    "main-table": "every method on every data set, beside popularity and the published figures",
    "sensitivity": "HR@10 and NDCG@10 over both radii",
    "ablation": "sharpness-awareness on one part, on both, on neither",
    "landscape": "the loss around the models of FedNCF and FedRecGEL",
    "quirks": "what quirks of the released codes are worth, each against the corrected method",
}
SETTINGS_OF = {
    "main-table": "tuned",
    "sensitivity": "published,long",
    "ablation": "published,long",
    "landscape": "published",
    "quirks": "tuned",
}
METHODS_OF: dict[str, tuple[str, ...]] = {
    "main-table": tuple(METHODS),
    "sensitivity": (sensitivity.METHOD,),
    "ablation": (ablation.METHOD,),
    "landscape": METHODS_COMPARED,
    "quirks": tuple(METHODS),
}
"""Methods each experiment can be made of."""
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
    """Add `experiment` and its kinds."""
    parser = subparsers.add_parser(
        "experiment",
        help="repeat the paper's experiments",
        description="Plan, run and reduce one of the paper's four experiments, or measure what quirks are worth.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="experiment", metavar="|".join(KINDS), required=True)
    for name, text in KINDS.items():
        kind = kinds.add_parser(name, help=text, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter)
        kind.add_argument("--datasets", metavar="A,B", default="demo", help=f"of {', '.join(NAMES)}")
        kind.add_argument("--methods", metavar="A,B", help=f"of {', '.join(METHODS_OF[name])} (default: all)")
        if name == "quirks":
            usual = ",".join(QUIRK_ROWS)
            kind.add_argument(
                "--rows", metavar="A,B", default=usual, help=f"beside the corrected one (default {usual})"
            )
        if name == "main-table":
            kind.add_argument(
                "--seeds-of",
                metavar="NAME=N,…",
                default="",
                help="other numbers of seeds for slow ones, as in gpfedrec=2,amazon-video/cofedrec=0; 0 leaves it out",
            )
        if name == "sensitivity":
            kind.add_argument("--grid", metavar="X,Y", help="values of the radii (default: the paper's)")
        if name == "landscape":
            _add_landscape_options(kind)
        if name != "quirks":
            kind.add_argument("--settings", default=SETTINGS_OF[name], metavar="NAME", help=f"of {', '.join(SETTINGS)}")
        kind.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 … N-1 (default 5)")
        kind.add_argument("--rounds", type=int, metavar="N", help="rounds of every federated method")
        kind.add_argument("--out", default="results", metavar="DIR", help="experiments' folder (default results)")
        kind.add_argument("--configs", default=CONFIGS, metavar="DIR", help="folder of configs (default configs)")
        kind.add_argument("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
        kind.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at the same time (default 1)")
        kind.add_argument("--plan", action="store_true", help="say what would be run and how long, after short probes")
        kind.add_argument(
            "--finished", action="store_true", help="run nothing: tables of what is finished, while the rest may run"
        )
        kind.add_argument(
            "--keep-models", action="store_true", help="also of methods nothing is measured on; some weigh gigabytes"
        )
        kind.add_argument("--quiet", action="store_true", help="print nothing but errors")
        add_set_option(kind)
        kind.set_defaults(run=run_experiment)


def _add_landscape_options(parser: ArgumentParser) -> None:
    usual = FlatnessSettings()
    parser.add_argument(
        "--normalisation", default="unit,filter", metavar="NAME", help="of the random directions, of unit, filter"
    )
    parser.add_argument("--grid-points", type=int, default=usual.grid, metavar="N", help="per axis of a surface")
    parser.add_argument("--clients", type=int, default=usual.clients, metavar="N", help="whose examples are the loss")


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
    started = time.perf_counter()
    stopped = False
    if args.finished:
        record_finished(plan)
    else:
        stopped = _run_missing(experiment, plan, args, console)
    document = experiment.reduce(root, ResultsLog(root).read(), _command(args))
    path = root / f"{experiment.name}.json"
    write_document(path, document)
    if stopped:
        console.say("Stopped. The same command goes on from here; finished runs are kept.")
        return INTERRUPTED
    if not args.quiet:
        print(as_text(document))
        page = f"fedrecgel report {shlex.quote(str(root))}"
        print(f"\n{duration(time.perf_counter() - started)}; results are in {path}. Make the page with: {page}")
    return 1 if console.failed else 0


def _run_missing(experiment: Experiment, plan: Plan, args: Namespace, console: Console) -> bool:
    """Train and measure what is not there yet; whether the user stopped it."""
    with stop_on_interrupt(console.say) as stop:
        execute(plan, args.jobs, stop, console.watch, keep_models=args.keep_models)
        measurements = experiment.measurements(plan.root)
        console.restart(len(measurements))
        for outcome in run_tasks(measurements, args.jobs, stop):
            console.watch(outcome)
        return stop.is_set()


def experiment_of(args: Namespace) -> Experiment:
    """What the options describe."""
    if not Path(args.configs).is_dir():
        if args.configs != CONFIGS:
            raise ConfigError(f"--configs should name a folder. Found none at '{args.configs}'.")
        print(f"There is no folder '{CONFIGS}' here: every method runs at its defaults, none tuned.", file=sys.stderr)
    presets = Presets(Path(args.configs), args.rounds, args.data_dir, tuple(map(parse_assignment, args.assignments)))
    datasets = _names("data set", args.datasets, [*NAMES, *(n for n in args.datasets.split(",") if Path(n).suffix)])
    valid = METHODS_OF[args.experiment]
    methods = _names(f"method of '{args.experiment}'", args.methods or ",".join(valid), valid)
    if args.experiment == "quirks":
        return QuirksExperiment(presets, datasets, methods, args.seeds, _names("row", args.rows, QUIRK_ROWS))
    settings = tuple(cast("Setting", name) for name in _names("setting", args.settings, SETTINGS))
    if args.experiment == "main-table":
        if len(settings) != 1:
            raise ConfigError(f"The main table takes one of the settings {', '.join(SETTINGS)}. Found {args.settings}.")
        return MainTableExperiment(presets, datasets, methods, settings[0], args.seeds, _seeds_of(args.seeds_of))
    if args.experiment == "sensitivity":
        return SensitivityExperiment(presets, datasets, settings, args.seeds, _grid(args.grid))
    if args.experiment == "ablation":
        return AblationExperiment(presets, datasets, settings, args.seeds)
    kinds = _names("normalisation", args.normalisation, get_args(Normalisation))
    flatness = tuple(
        FlatnessSettings(cast("Normalisation", kind), grid=args.grid_points, clients=args.clients) for kind in kinds
    )
    return LandscapeExperiment(presets, datasets, settings, args.seeds, flatness, methods)


def _names(kind: str, text: str, valid: Iterable[str]) -> tuple[str, ...]:
    """The names of a list, each checked."""
    known = {name: name for name in valid}
    return tuple(dict.fromkeys(lookup(kind, name.strip(), known) for name in text.split(",")))


def _seeds_of(text: str) -> dict[str, int]:
    found = {}
    for part in filter(None, text.split(",")):
        name, _, count = part.partition("=")
        lookup("method", name.rpartition("/")[2], METHODS)
        if not count.isdigit():
            raise ConfigError(f"--seeds-of takes NAME=N, as in gpfedrec=2. Found '{part}'.")
        found[name] = int(count)
    return found


def _grid(text: str | None) -> tuple[float, ...]:
    if text is None:
        return GRID
    try:
        return tuple(float(value) for value in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--grid takes numbers, as in 0,0.02,0.5. Found '{text}'.") from error


def _command(args: Namespace) -> str:
    """The command with the options that shape its numbers, so that a reader can repeat them."""
    usual: dict[str, object] = {
        "configs": CONFIGS,
        "settings": SETTINGS_OF[args.experiment],
        "normalisation": "unit,filter",
    }
    usual |= {
        "grid_points": FlatnessSettings().grid,
        "clients": FlatnessSettings().clients,
        "out": "results",
        "seeds_of": "",
        "rows": ",".join(QUIRK_ROWS),
    }
    words = ["fedrecgel", "experiment", args.experiment, "--datasets", args.datasets, "--seeds", str(args.seeds)]
    for flag in (
        "methods",
        "rows",
        "seeds_of",
        "settings",
        "rounds",
        "grid",
        "grid_points",
        "clients",
        "normalisation",
        "configs",
        "out",
    ):
        value = getattr(args, flag, None)
        if value is not None and value != usual.get(flag):
            words += [f"--{flag.replace('_', '-')}", str(value)]
    for text in args.assignments:
        words += ["--set", text]
    return shlex.join(words)
