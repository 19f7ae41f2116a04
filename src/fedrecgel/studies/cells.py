"""The runs of one configuration over seeds, and what a table shows of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from fedrecgel.evaluation.ranking import client_metrics
from fedrecgel.methods import METHODS
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.ranks_file import read_ranks
from fedrecgel.studies.plan import config_fingerprint
from fedrecgel.studies.presets import Assignment, Origin, Presets, Setting
from fedrecgel.studies.published import PublishedCell
from fedrecgel.studies.records import Record
from fedrecgel.studies.statistics import (
    Array,
    Comparison,
    bootstrap_interval,
    compare,
    holm,
    paired_differences,
)

K = TypeVar("K")
METRICS = ("HR@5", "NDCG@5", "HR@10", "NDCG@10")
Against = Literal["candidates", "catalogue"]
AGAINST: tuple[Against, ...] = ("candidates", "catalogue")


def shown_name(dataset: str) -> str:
    """A data set in tables and file names: its name, or that of its file without folders."""
    return Path(dataset).name


@dataclass(frozen=True)
class Entry:
    """One row of a table before it is run: the same settings with several seeds."""

    dataset: str
    method: str
    label: str
    """What tells it from the other rows: the method, a variant, a value."""
    about: str
    """Where its settings come from."""
    origins: tuple[Origin, ...]
    """One per seed."""


def entry_of(
    presets: Presets,
    dataset: str,
    method: str,
    setting: Setting,
    seeds: int,
    *,
    label: str | None = None,
    changes: Sequence[Assignment] = (),
) -> Entry:
    """A row with so many seeds; a method that draws nothing needs one."""
    count = 1 if METHODS[method].draws_nothing else seeds
    origins = tuple(presets.origin(dataset, method, setting, seed, changes) for seed in range(count))
    return Entry(shown_name(dataset), method, label or method, origins[0].about, origins)


@dataclass(frozen=True)
class Cell:
    """A metric over seeds, as a fraction."""

    mean: float
    sd: float | None
    """Over seeds; None for a single one."""
    published: PublishedCell | None = None
    popularity: Comparison | None = None
    """Ours minus popularity, user by user."""
    mark: Literal["best", "second"] | None = None


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    dataset: str
    method: str
    kind: str
    label: str
    about: str
    seeds: list[int]
    missing_seeds: list[int]
    """Planned, and failed or not run yet."""
    rounds: int
    selection: str
    seconds: float
    """Training and evaluation of one run, mean over seeds."""
    up: float
    """Bytes a client sends each time it trains."""
    down: float
    leaves_device: list[str]
    cells: dict[Against, dict[str, Cell]]
    folders: list[str]
    """Where every number of this row comes from."""
    heading: str = ""
    """How its settings were found, in the words of their file."""


@dataclass(frozen=True)
class Runs:
    """The finished runs of an entry, and their metrics user by user."""

    entry: Entry
    seeds: tuple[int, ...]
    records: tuple[Record, ...]
    tests: frozenset[str]
    """Fingerprints of who is tested on what."""
    tables: dict[Against, dict[str, Array]] = field(repr=False)
    """[S, U] of every metric."""

    def table(self, against: Against, metric: str, seeds: Sequence[int]) -> Array:
        """[S, U] of these seeds; a method that needs one seed only has one row."""
        rows = self.tables[against][metric]
        if METHODS[self.entry.method].draws_nothing:
            return rows[:1]
        return rows[[self.seeds.index(seed) for seed in seeds]]


def load_runs(root: Path, entry: Entry, records: dict[str, Record]) -> Runs | None:
    """The finished runs of an entry; None if there is none."""
    found = []
    for origin in entry.origins:
        record = records.get(config_fingerprint(origin.config))
        if record is not None and record.status == "finished":
            found.append((origin.config, record))
    if not found:
        return None
    tests, tables = set(), []
    for config, record in found:
        ranks = read_ranks(RunFolder(root / record.folder).ranks)
        tests.add(ranks.test)
        ks = sorted({*config.evaluation.ks, 5, 10})
        tables.append({name: client_metrics(r, ks, config.evaluation.ties) for name, r in ranks.against.items()})
    shared = [against for against in AGAINST if all(against in table for table in tables)]
    stacked: dict[Against, dict[str, Array]] = {
        against: {metric: np.stack([table[against][metric].numpy() for table in tables]) for metric in METRICS}
        for against in shared
    }
    seeds = tuple(config.run.seed for config, _ in found)
    return Runs(entry, seeds, tuple(record for _, record in found), frozenset(tests), stacked)


def compare_runs(first: Runs, second: Runs, against: Against, metric: str) -> Comparison | None:
    """First minus second over common users and seeds; None where they were not tested on the same."""
    if first.tests != second.tests or len(first.tests) != 1:
        return None
    if against not in first.tables or against not in second.tables:
        return None
    seeds = tuple(seed for seed in first.seeds if seed in second.seeds)
    if METHODS[second.entry.method].draws_nothing:
        seeds = first.seeds
    elif METHODS[first.entry.method].draws_nothing:
        seeds = second.seeds
    if not seeds:
        return None
    found = compare(first.table(against, metric, seeds), second.table(against, metric, seeds))
    draws = not all(METHODS[runs.entry.method].draws_nothing for runs in (first, second))
    return replace(found, one_seed=draws and len(seeds) == 1)


def family(pairs: Mapping[K, tuple[Runs, Runs]], against: Against, metric: str) -> dict[K, Comparison]:
    """First minus second of every pair that can be compared, corrected together by Holm's method."""
    found = {
        label: comparison
        for label, (first, second) in pairs.items()
        if (comparison := compare_runs(first, second, against, metric)) is not None
    }
    adjusted = holm([comparison.p for comparison in found.values()])
    return {label: replace(found[label], p_adjusted=p) for label, p in zip(found, adjusted, strict=True)}


def differences(pairs: Mapping[str, tuple[Runs, Runs]]) -> dict[str, dict[Against, dict[str, Comparison]]]:
    """First minus second of every pair; the pairs of a metric are one family, and intervals a bootstrap."""
    found: dict[str, dict[Against, dict[str, Comparison]]] = {}
    for against in AGAINST:
        for metric in METRICS:
            for label, comparison in family(pairs, against, metric).items():
                first, second = pairs[label]
                seeds = [seed for seed in first.seeds if seed in second.seeds]
                low, high = bootstrap_interval(
                    paired_differences(first.table(against, metric, seeds), second.table(against, metric, seeds))
                )
                found.setdefault(label, {}).setdefault(against, {})[metric] = replace(comparison, low=low, high=high)
    return found


def left_out(entries: Iterable[Entry], records: Mapping[str, Record]) -> dict[str, list[str]]:
    """Rows of each data set without a finished run, and whether one was tried."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        tried = [records.get(config_fingerprint(origin.config)) for origin in entry.origins]
        if not any(record is not None and record.status == "finished" for record in tried):
            name = entry.method if entry.label == entry.method else f"{entry.method}, {entry.label}"
            found.setdefault(entry.dataset, []).append(f"{name} ({'failed' if any(tried) else 'not run'})")
    return found


def cells_of(runs: Runs) -> dict[Against, dict[str, Cell]]:
    """Mean and standard deviation over seeds of every metric."""
    return {
        against: {metric: _cell(values.mean(1)) for metric, values in metrics.items()}
        for against, metrics in runs.tables.items()
    }


def _cell(by_seed: Array) -> Cell:
    return Cell(float(by_seed.mean()), float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None)


def row_of(runs: Runs, cells: dict[Against, dict[str, Cell]]) -> Row:
    """A row of a table."""
    entry, first = runs.entry, runs.records[0].run
    planned = [origin.config.run.seed for origin in entry.origins]
    return Row(
        dataset=entry.dataset,
        method=entry.method,
        kind=METHODS[entry.method].kind,
        label=entry.label,
        about=entry.about,
        seeds=list(runs.seeds),
        missing_seeds=[seed for seed in planned if seed not in runs.seeds],
        rounds=first["rounds"],
        selection=first["protocol"]["selection"],
        seconds=float(np.mean([record.run["seconds"]["total"] for record in runs.records])),
        up=runs.records[0].traffic("up"),
        down=runs.records[0].traffic("down"),
        leaves_device=first["privacy"]["leaves_device"],
        cells=cells,
        folders=[record.folder for record in runs.records],
        heading=entry.origins[0].heading,
    )
