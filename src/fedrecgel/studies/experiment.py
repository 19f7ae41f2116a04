"""What an experiment is: one file with its options, its runs, its numbers, and how the page shows them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from fedrecgel.display.chart import Chart
from fedrecgel.display.section import Part, in_order
from fedrecgel.display.tabular import Table
from fedrecgel.runs.config import Config, lookup
from fedrecgel.storage import write_text
from fedrecgel.studies.presets import Presets, Setting
from fedrecgel.studies.records import Record
from fedrecgel.studies.tasks import Task


@dataclass(frozen=True)
class Option:
    """An option that one experiment has and others do not."""

    flag: str
    """As in --seeds-of."""
    metavar: str
    help: str
    default: str | int | None = None
    """Its type is that of the option; None stands for text that may be left out."""

    @property
    def name(self) -> str:
        """As in seeds_of."""
        return self.flag.removeprefix("--").replace("-", "_")


@dataclass(frozen=True)
class Scope:
    """What the command line says, the same for every experiment."""

    presets: Presets
    datasets: tuple[str, ...]
    seeds: int
    settings: tuple[Setting, ...] = ()
    """Empty for an experiment without --settings."""
    methods: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of the experiment's own options by name; what is missing has its default."""


@dataclass(frozen=True)
class Document(ABC):
    """A reduced experiment, as its JSON file holds it: every number of its tables and charts."""

    command: str

    @abstractmethod
    def tables(self) -> list[Table]:
        """Printed by the command, shown on the page, written for papers."""

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        """Drawn on the page and for papers; `records` are the finished runs of the folder."""
        return []

    def parts(self, records: Sequence[Record]) -> list[Part]:
        """Its section of the page."""
        return in_order(self.charts(records), self.tables())

    def findings(self) -> dict[str, list[str]]:
        """What its tests say in plain words, by data set."""
        return {}

    def text(self) -> str:
        """All tables for a terminal, with their notes once."""
        tables = self.tables()
        notes = dict.fromkeys(note for table in tables for note in table.notes)
        return "\n\n".join([*(table.text() for table in tables), "\n".join(f"- {note}" for note in notes)])

    def write(self, path: Path) -> None:
        """As JSON, for the report and other programs."""
        write_text(path, msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n")


@dataclass(frozen=True)
class Experiment(ABC):
    """Which runs a question needs, and which numbers answer it."""

    name: ClassVar[str]
    """On the command line, and of its JSON file."""
    help: ClassVar[str]
    """One line for the command line."""
    document: ClassVar[type[Document]]
    """What it reduces to."""
    title: ClassVar[str]
    """Of its section of the page."""
    about: ClassVar[str]
    """One or two sentences below it."""
    options: ClassVar[tuple[Option, ...]] = ()
    methods: ClassVar[tuple[str, ...] | None] = None
    """Those it can be made of; None for any."""
    settings: ClassVar[str | None] = "published"
    """The default of --settings; None if it has no such option."""
    usual_seeds: ClassVar[int] = 5
    """The default of --seeds."""
    page_place: ClassVar[int] = 90
    """Sections stand in this order; those below 25 come before the training curves."""
    findings_place: ClassVar[int] = 90
    """Sentences about a data set stand in this order."""

    scope: Scope

    def option(self, name: str) -> Any:
        """The value of one of its own options."""
        return self.scope.options.get(name, next(own.default for own in self.options if own.name == name))

    @abstractmethod
    def configs(self) -> list[Config]:
        """Every run it needs.

        Raises:
            ConfigError: an option is wrong; nothing was run or written.
        """

    def measurements(self, root: Path) -> list[Task]:
        """What is still to be measured on trained models."""
        return []

    @abstractmethod
    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Document:
        """The numbers, made of run folders only."""


def names_in(kind: str, text: str, valid: Iterable[str]) -> tuple[str, ...]:
    """The names of a list, each checked."""
    known = {name: name for name in valid}
    return tuple(dict.fromkeys(lookup(kind, name.strip(), known) for name in text.split(",")))
