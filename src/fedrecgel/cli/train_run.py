"""What `fedrecgel train` does: one run, watched."""

from __future__ import annotations

import signal
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from fedrecgel.cli.common import INTERRUPTED, config_of, warnings_as_sentences, writable
from fedrecgel.cli.table import result_table
from fedrecgel.cli.user_progress import CatalogueProgress
from fedrecgel.errors import ConfigError
from fedrecgel.report.event_log import EventLog
from fedrecgel.runs.choice import read_titles
from fedrecgel.runs.config import Config
from fedrecgel.runs.continued import find_start, folder_of
from fedrecgel.runs.flower import train_on_flower
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.progress import Progress
from fedrecgel.runs.result import open_run
from fedrecgel.runs.rewrite import keep_titles
from fedrecgel.runs.train import load_split, train_config
from fedrecgel.runs.training import Interrupted, Line


def run(args: Namespace) -> int:
    """Train, or show a run that is finished already."""
    if args.start is not None:
        args.start = folder_of(args.start)
        args.config = args.config or str(RunFolder(Path(args.start)).config)
    config = _final_config(args) if args.final or args.rounds_of else config_of(args)
    if args.start is not None:  # the run itself may have been continued
        config = replace(config, run=replace(config.run, start_mark=None))
    config, earlier = find_start(config)
    folder = RunFolder(writable(config.default_out if args.out is None else args.out))
    state = folder.claim(config.to_dict(), resume=args.resume)
    if state == "finished":
        folder.check_data(load_split(config).fingerprint)
        if not args.quiet:
            print(result_table(open_run(folder.path)))
            print(f"\nNothing to do: this run was finished before. Results are in {folder.path}")
            print("To repeat it, choose another folder with --out.")
        return 0
    events = EventLog(folder.path / "tensorboard") if args.tensorboard else None
    progress = Progress(config, quiet=args.quiet)
    deployed = config.run.engine == "flower" and config.flower.superlink is not None
    split = None
    if not deployed:  # there the data are on the nodes
        progress.say(f"Loading {config.data.name} …")
        split = load_split(config)
        for sentence in split.interactions.assumed:
            progress.say(sentence)
        progress.start(split)
        if args.titles is not None:
            with warnings_as_sentences():
                read_titles(args.titles, split.interactions.item_ids)  # before anything is trained
    local = partial(train_config, start=earlier, say=progress.say, ranked=CatalogueProgress(progress))
    start = local if config.run.engine == "local" else partial(train_on_flower, say=progress.say)
    with _stop_on_interrupt(progress) as should_stop, progress, events or nullcontext():
        try:
            watch = _both(progress.watch, events.watch) if events else progress.watch
            result = start(config, split, folder, resume=args.resume, watch=watch, should_stop=should_stop)
        except Interrupted as stopped:
            progress.close()
            progress.say(f"Stopped after round {stopped.rounds}. Continue with the same command and --resume.")
            return INTERRUPTED
    if args.titles is not None and result is not None:
        with warnings_as_sentences():
            keep_titles(folder.path, result.with_titles(args.titles))
    if result is None:
        progress.say(f"Finished. Results are on the server, in {folder.path.resolve()}")
        return 0
    if config.local.accelerate is True and not result.summary["accelerated"]:
        progress.say("local.accelerate had no effect: there is no kernel for these settings.")
    if not args.quiet:
        print(result_table(result))
        print(f"\nResults are in {folder.path}")
    return 0


def _final_config(args: Namespace) -> Config:
    """The settings of a run that holds nothing out.

    Raises:
        ConfigError: it is not said how many rounds it should take.
    """
    if not args.final:
        raise ConfigError("--rounds-of says how long a final model trains. Add --final, or give --rounds N.")
    if args.rounds_of is not None:
        run = RunFolder(Path(args.rounds_of))
        args.rounds = args.rounds or run.read_summary()["protocol"]["selected_round"]
        args.config = args.config or str(run.config)
    args.assignments = [*args.assignments, "run.final=true", "evaluation.selection='last'", "split.validation=false"]
    config = config_of(args)
    stated = any(text.replace(" ", "").startswith("run.rounds=") for text in args.assignments)
    given = args.config or args.config_option
    if args.rounds is None and given is None and not stated and config.method.build().rounds is None:
        raise ConfigError(
            "A final model measures nothing, so it cannot tell when to stop. Give --rounds N, a tuned CONFIG.toml, or "
            "--rounds-of RUN with a finished run."
        )
    return config


def _both(first: Callable[[Line], None], second: Callable[[Line], None]) -> Callable[[Line], None]:
    def watch(line: Line) -> None:
        first(line)
        second(line)

    return watch


@contextmanager
def _stop_on_interrupt(progress: Progress) -> Iterator[Callable[[], bool]]:
    """Ctrl-C finishes the round, writes a checkpoint and stops; a second one stops at once."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        progress.say("Finishing this round; press Ctrl-C again to stop at once …")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
