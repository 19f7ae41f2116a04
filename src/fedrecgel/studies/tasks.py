"""What a worker process does: train one run, or measure one trained model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from fedrecgel.data.load import DataSettings, load_data
from fedrecgel.data.protocols import make_split
from fedrecgel.data.split import Split, SplitSettings
from fedrecgel.runs.config import Config
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.result import Result, open_run
from fedrecgel.runs.train import train_config
from fedrecgel.storage import write_text
from fedrecgel.studies.records import GENERALISATION, is_complete
from fedrecgel.theory.flatness import FlatnessSettings, measure_flatness
from fedrecgel.theory.generalisation import generalisation_of

SPLITS = 6
"""Splits a process keeps: those of the data sets of one experiment."""


@runtime_checkable
class Task(Protocol):
    """Something to do in a process of its own; all of it can be sent there."""

    @property
    def label(self) -> str:
        """For people."""

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Do it; files are the only result."""


@lru_cache(maxsize=SPLITS)
def split_of(data: DataSettings, settings: SplitSettings) -> Split:
    """The split of these settings: a process loads data once for all its runs, whatever their order."""
    return make_split(load_data(data), settings)


@lru_cache(maxsize=1)
def _opened(folder: Path) -> Result:
    """A run to measure; its measurements follow each other and have numbers in common."""
    return open_run(folder)


@dataclass(frozen=True)
class TrainTask:
    """Train a config into a folder, going on where an earlier attempt stopped."""

    label: str
    config: Config
    folder: Path
    keep_models: bool = False
    """Keep every model; else only those something is measured on. Dense personal tables weigh gigabytes a run."""

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Train, then compare the losses on training and held-out examples."""
        folder = RunFolder(self.folder)
        if is_complete(self.folder):
            return  # another experiment with this --out was faster
        split = split_of(self.config.data, self.config.split)
        if folder.summary.exists():  # stopped between the last two files
            result = open_run(folder.path)
        else:
            result = train_config(self.config, split, folder, resume=folder.config.exists(), should_stop=should_stop)
        found = generalisation_of(result, split)
        write_text(self.folder / GENERALISATION, json.dumps(None if found is None else asdict(found)) + "\n")
        if not self.keep_models:
            folder.checkpoint.unlink(missing_ok=True)  # a finished run needs neither it nor the round it chose
            folder.forget_other_bests()
            if found is None:
                folder.server.unlink(missing_ok=True)
                folder.clients.unlink(missing_ok=True)


@dataclass(frozen=True)
class FlatnessTask:
    """Measure the loss around a trained model."""

    label: str
    config: Config
    folder: Path
    out: Path
    settings: FlatnessSettings

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Write the measurement beside the experiments' other results."""
        split = split_of(self.config.data, self.config.split)
        found = measure_flatness(_opened(self.folder), split, self.settings, should_stop)
        write_text(self.out, json.dumps(asdict(found)) + "\n")
