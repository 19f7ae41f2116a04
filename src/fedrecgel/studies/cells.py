"""The runs of one configuration over seeds, and what a table shows of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from fedrecgel.data.split import SplitSettings
from fedrecgel.errors import ConfigError
from fedrecgel.evaluation.metrics import client_metrics, metric_names
from fedrecgel.evaluation.ranking import TieRule
from fedrecgel.methods import find_method, method_label
from fedrecgel.runs.config import Config
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.ranks_file import RankFile, read_ranks
from fedrecgel.studies.fingerprints import config_fingerprint
from fedrecgel.studies.leaks import recorded_leak
from fedrecgel.studies.presets import Assignment, Origin, Presets, Setting
from fedrecgel.studies.published import PublishedCell
from fedrecgel.studies.records import Record
from fedrecgel.studies.statistics import Array, Comparison, compare, correct

K = TypeVar("K")
PAPER_KS = (5, 10)
"""Cut-offs of the paper's tables."""
SHOWN = ("HR@10", "NDCG@10")
"""What the paper's figures show, and where a table has room for two metrics only."""
Against = Literal["candidates", "catalogue"]
AGAINST: tuple[Against, ...] = ("candidates", "catalogue")


def table_metrics() -> list[str]:
    """Metric columns of tables: HR and NDCG at the paper's cut-offs, and whatever else is registered for tables."""
    return metric_names(PAPER_KS, in_tables=True)


def user_metrics(ranks: RankFile, ties: TieRule) -> dict[Against, dict[str, Array]]:
    """[U] of every metric of tables, in both rankings as far as there are ranks."""
    found: dict[Against, dict[str, Array]] = {}
    for against in AGAINST:
        if against in ranks.against:
            of_users = client_metrics(ranks.against[against], PAPER_KS, ties)
            found[against] = {metric: of_users[metric].numpy() for metric in table_metrics()}
    return found


def draws_nothing(method: str) -> bool:
    """Whether a method is the same for every seed; False for one whose file is gone since it ran."""
    try:
        return find_method(method).draws_nothing
    except ConfigError:
        return False


def shown_name(dataset: str) -> str:
    """A data set in tables and file names: its name, or that of its file without folders."""
    return Path(dataset).name


@dataclass(frozen=True)
class RowPlan:
    """One row of a table before it is run: the same settings with several seeds."""

    dataset: str
    method: str
    label: str
    """What tells it from the other rows: the method, a variant, a value."""
    about: str
    """Where its settings come from."""
    origins: tuple[Origin, ...]
    """One per seed."""

    def load(self, root: Path, records: Mapping[str, Record]) -> Runs | None:
        """Its finished runs; None if there is none."""
        found = []
        for origin in self.origins:
            record = records.get(config_fingerprint(origin.config))
            if record is not None and record.status == "finished":
                found.append((origin.config, record))
        if not found:
            return None
        tests, tables = [], []
        for config, record in found:
            ranks = read_ranks(RunFolder(root / record.folder).ranks, run=record.run.get("run"))
            tests.append(ranks.test)
            tables.append(user_metrics(ranks, config.evaluation.ties))
        shared = [against for against in AGAINST if all(against in table for table in tables)]
        stacked: dict[Against, dict[str, Array]] = {
            against: {metric: np.stack([table[against][metric] for table in tables]) for metric in table_metrics()}
            for against in shared
        }
        seeds = tuple(config.run.seed for config, _ in found)
        return Runs(self, seeds, tuple(record for _, record in found), tuple(tests), stacked)


def plan_row(
    presets: Presets,
    dataset: str,
    method: str,
    setting: Setting,
    seeds: int,
    *,
    label: str | None = None,
    changes: Sequence[Assignment] = (),
    own_splits: bool = False,
) -> RowPlan:
    """A row with so many seeds; on one split, a method that draws nothing needs one.

    With `own_splits` every seed has a split of its own, so that candidates, and a hold-out that is random, vary, too.
    """
    apart = own_splits and not presets.fixes("split", "seed")
    count = 1 if find_method(method).draws_nothing and not apart else seeds

    def changed(seed: int) -> list[Assignment]:
        return [*changes, ("split", "seed", SplitSettings().seed + seed)] if apart else list(changes)

    origins = tuple(presets.origin(dataset, method, setting, seed, changed(seed)) for seed in range(count))
    return RowPlan(shown_name(dataset), method, label or method_label(method), origins[0].about, origins)


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
    trials: int | None = None
    """Of which its settings are the best; 0 for settings that nobody searched for, None where it is unknown."""
    leak: bool = False
    """Whether its runs recorded that held-out items stand in training rows."""


@dataclass(frozen=True)
class Runs:
    """The finished runs of a planned row, and their metrics user by user."""

    plan: RowPlan
    seeds: tuple[int, ...]
    records: tuple[Record, ...]
    tests: tuple[str, ...]
    """Fingerprints of who is tested on what, one per seed."""
    tables: dict[Against, dict[str, Array]] = field(repr=False)
    """[S, U] of every metric."""

    @property
    def for_all_seeds(self) -> bool:
        """Whether its one run stands for every seed: nothing is drawn, and there is one split."""
        return draws_nothing(self.plan.method) and len(self.plan.origins) == 1

    def table(self, against: Against, metric: str, seeds: Sequence[int]) -> Array:
        """[S, U] of these seeds; one row if its one run stands for all."""
        rows = self.tables[against][metric]
        return rows[:1] if self.for_all_seeds else rows[[self.seeds.index(seed) for seed in seeds]]

    def tested_on(self, seed: int) -> str:
        """Fingerprint of who is tested on what with this seed."""
        return self.tests[0 if self.for_all_seeds else self.seeds.index(seed)]

    def cells(self) -> dict[Against, dict[str, Cell]]:
        """Mean and standard deviation over seeds of every metric."""
        return {
            against: {metric: _cell(values.mean(1)) for metric, values in metrics.items()}
            for against, metrics in self.tables.items()
        }

    def row(self, cells: dict[Against, dict[str, Cell]] | None = None) -> Row:
        """A row of a table, with cells that say more than `cells` if they are given."""
        plan, first = self.plan, self.records[0].run
        planned = [origin.config.run.seed for origin in plan.origins]
        return Row(
            dataset=plan.dataset,
            method=plan.method,
            kind=find_method(plan.method).kind,
            label=plan.label,
            about=plan.about,
            seeds=list(self.seeds),
            missing_seeds=[seed for seed in planned if seed not in self.seeds],
            rounds=first["rounds"],
            selection=first["protocol"]["selection"],
            seconds=float(np.mean([record.run["seconds"]["total"] for record in self.records])),
            up=self.records[0].traffic("up"),
            down=self.records[0].traffic("down"),
            leaves_device=first["privacy"]["leaves_device"],
            cells=self.cells() if cells is None else cells,
            folders=[record.folder for record in self.records],
            heading=plan.origins[0].heading,
            trials=plan.origins[0].trials,
            leak=recorded_leak(record.run for record in self.records),
        )


def load_group(root: Path, plans: Iterable[RowPlan], records: Mapping[str, Record]) -> dict[str, Runs]:
    """The rows of a group that have finished runs, by label."""
    return {plan.label: runs for plan in plans if (runs := plan.load(root, records)) is not None}


def configs_of(plans: Iterable[RowPlan]) -> list[Config]:
    """The runs of planned rows."""
    return [origin.config for plan in plans for origin in plan.origins]


def compare_runs(first: Runs, second: Runs, against: Against, metric: str) -> Comparison | None:
    """First minus second over common users and seeds; None where they were not tested on the same."""
    if against not in first.tables or against not in second.tables:
        return None
    seeds = tuple(seed for seed in first.seeds if seed in second.seeds)
    if second.for_all_seeds:
        seeds = first.seeds
    elif first.for_all_seeds:
        seeds = second.seeds
    if not seeds or any(first.tested_on(seed) != second.tested_on(seed) for seed in seeds):
        return None
    found = compare(first.table(against, metric, seeds), second.table(against, metric, seeds))
    return replace(found, fixed=all(draws_nothing(runs.plan.method) for runs in (first, second)))


def family(pairs: Mapping[K, tuple[Runs, Runs]], against: Against, metric: str) -> dict[K, Comparison]:
    """First minus second of every pair that can be compared, corrected together."""
    found = {
        label: comparison
        for label, (first, second) in pairs.items()
        if (comparison := compare_runs(first, second, against, metric)) is not None
    }
    return dict(zip(found, correct(list(found.values())), strict=True))


def differences(pairs: Mapping[str, tuple[Runs, Runs]]) -> dict[str, dict[Against, dict[str, Comparison]]]:
    """First minus second of every pair; the pairs of a metric are one family."""
    found: dict[str, dict[Against, dict[str, Comparison]]] = {}
    for against in AGAINST:
        for metric in table_metrics():
            for label, comparison in family(pairs, against, metric).items():
                found.setdefault(label, {}).setdefault(against, {})[metric] = comparison
    return found


def left_out(plans: Iterable[RowPlan], records: Mapping[str, Record]) -> dict[str, list[str]]:
    """Rows of each data set without a finished run, and whether one was tried."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        tried = [records.get(config_fingerprint(origin.config)) for origin in plan.origins]
        if not any(record is not None and record.status == "finished" for record in tried):
            method = method_label(plan.method)
            name = plan.label if plan.label.startswith(method) else f"{method}, {plan.label}"
            found.setdefault(plan.dataset, []).append(f"{name} ({'failed' if any(tried) else 'not run'})")
    return found


def _cell(by_seed: Array) -> Cell:
    return Cell(float(by_seed.mean()), float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None)
