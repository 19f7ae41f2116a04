"""Any finished runs on the same split, user by user: configurations, their pairs, and the test of each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fedrecgel.errors import ConfigError, RunFolderError
from fedrecgel.evaluation.ranking import TieRule
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.ranks_file import RankFile, read_ranks
from fedrecgel.runs.result import Result
from fedrecgel.runs.settings import CHANGE_NO_NUMBER, Settings, difference, settings_fingerprint
from fedrecgel.studies.cells import AGAINST, Against, draws_nothing, shown_name, table_metrics, user_metrics
from fedrecgel.studies.labels import SEEDS, labels_of
from fedrecgel.studies.statistics import Array, Comparison, compare, correct


@dataclass(frozen=True)
class FinishedRun:
    """What a comparison reads of a run."""

    name: str
    """Its folder, or what it is called otherwise."""
    settings: Settings
    summary: dict[str, Any]
    ranks: RankFile

    @classmethod
    def of(cls, run: Result | str | Path) -> FinishedRun:
        """A run in memory, or in its folder."""
        if isinstance(run, Result):
            name = f"{run.summary['method']}, seed {run.summary['seed']}"
            return cls(name, run.config.to_dict(), run.summary, run.ranks).checked()
        folder = RunFolder(Path(run))
        found = folder.read_finished()
        own = None if found.files is None else found.files.get(folder.ranks.name, "")
        ranks = read_ranks(folder.ranks, run=found.summary.get("run"), sha256=own)
        return cls(str(run), found.settings, found.summary, ranks).checked()

    def checked(self) -> FinishedRun:
        """Itself, if users can be compared one by one."""
        if not self.ranks.against:
            raise RunFolderError(
                f"'{self.name}' should know every user's rank. It has none: nothing was held out, or its nodes kept "
                f"the ranks."
            )
        return self

    @property
    def seed(self) -> int:
        """Of its training."""
        return int(self.summary["seed"])

    @property
    def ties(self) -> TieRule:
        """How equal scores count."""
        rule: TieRule = self.settings.get("evaluation", {}).get("ties", "expected")
        return rule


@dataclass(frozen=True)
class Configuration:
    """Runs that differ in their seeds only."""

    label: str
    runs: tuple[FinishedRun, ...]
    tables: tuple[dict[Against, dict[str, Array]], ...]
    """Metrics of every user, one entry per run."""

    @property
    def method(self) -> str:
        """Its name in settings."""
        return str(self.runs[0].settings["method"]["name"])

    def by_test(self) -> dict[str, list[int]]:
        """Places of the runs by whom they were tested on."""
        found: dict[str, list[int]] = {}
        for place, run in enumerate(self.runs):
            found.setdefault(run.ranks.test, []).append(place)
        return found

    def means(self, against: Against, metric: str) -> Array | None:
        """Of each seed; None where not every run was ranked so."""
        if any(against not in table for table in self.tables):
            return None
        return np.array([table[against][metric].mean() for table in self.tables])


def configurations_of(runs: Sequence[FinishedRun], least: int = 2) -> list[Configuration]:
    """Runs by their settings, in the order given.

    Raises:
        ConfigError: there are fewer than `least`, or one run is given twice.
    """
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        path = bool(run.summary.get("accelerated"))
        groups.setdefault(settings_fingerprint(run.settings, CHANGE_NO_NUMBER | SEEDS, path), []).append(run)
    for same in groups.values():
        names = [(run.seed, run.ranks.test) for run in same]
        twice = next((run for run, name in zip(same, names, strict=True) if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"Every run should be given once. Found '{twice.name}' with this seed and split twice.")
    if len(groups) < least:
        found = f"{len(runs)} of one configuration" if runs else "none"
        raise ConfigError(f"A comparison needs runs of two configurations or more. Found {found}.")
    firsts = [same[0] for same in groups.values()]
    labels = labels_of([run.settings for run in firsts], [bool(run.summary.get("accelerated")) for run in firsts])
    made = []
    for label, same in zip(labels, groups.values(), strict=True):
        ordered = tuple(sorted(same, key=lambda run: run.seed))
        made.append(Configuration(label, ordered, tuple(user_metrics(run.ranks, run.ties) for run in ordered)))
    return made


def couples(first: Configuration, second: Configuration) -> list[tuple[int, int]]:
    """Which run of the first is compared with which of the second: same test items, and the same seed if there is one.

    Raises:
        ConfigError: no two of them were tested on the same, with the reason.
    """
    found: list[tuple[int, int]] = []
    others = second.by_test()
    for test, mine in first.by_test().items():
        theirs = others.get(test, [])
        if len(theirs) == 1 and draws_nothing(second.method):
            found += [(place, theirs[0]) for place in mine]
        elif len(mine) == 1 and draws_nothing(first.method):
            found += [(mine[0], place) for place in theirs]
        else:
            found += _by_seed(first, second, mine, theirs)
    if not found:
        raise ConfigError(_why_not(first.runs[0], second.runs[0]))
    return found


def _by_seed(
    first: Configuration, second: Configuration, mine: Sequence[int], theirs: Sequence[int]
) -> list[tuple[int, int]]:
    """Runs with the same seed, then the rest in order: on one split seeds are luck and nothing else."""
    seeds = {second.runs[place].seed: place for place in theirs}
    same = {place: seeds[seed] for place in mine if (seed := first.runs[place].seed) in seeds}
    rest = [place for place in mine if place not in same], [place for place in theirs if place not in same.values()]
    return [*same.items(), *zip(*rest, strict=False)]


def _why_not(first: FinishedRun, second: FinishedRun) -> str:
    """Why two runs cannot be compared user by user."""
    both = f"'{first.name}' and '{second.name}' should be tested on the same users and items"
    theirs, ours = ({key: run.settings.get(key, {}) for key in ("data", "split")} for run in (first, second))
    sets = [shown_name(run.summary["dataset"]) for run in (first, second)]
    if sets[0] != sets[1]:
        return f"{both}. Found data sets {sets[0]} and {sets[1]}."
    changed = difference(ours, theirs, CHANGE_NO_NUMBER | {("data", "name")})
    if changed is not None:
        return "{}. Found {} = {!r} and {!r}.".format(both, *changed)
    return f"{both}. Their settings agree, so the data changed between them. Train one of them again."


@dataclass(frozen=True)
class PairedTest:
    """The first minus the second, in one metric of one ranking."""

    first: str
    second: str
    against: Against
    metric: str
    comparison: Comparison


def all_pairs(configurations: Sequence[Configuration]) -> list[PairedTest]:
    """Every pair in every metric; the pairs of a metric and ranking are one family.

    Raises:
        ConfigError: two of them cannot be compared.
    """
    matched = {(a.label, b.label): (a, b, couples(a, b)) for a, b in combinations(configurations, 2)}
    found = []
    for against in AGAINST:
        if not all(against in table for one in configurations for table in one.tables):
            continue
        for metric in table_metrics():
            tests = [_compare(a, b, places, against, metric) for a, b, places in matched.values()]
            found += [
                PairedTest(*names, against, metric, comparison)
                for names, comparison in zip(matched, correct(tests), strict=True)
            ]
    return found


def _compare(
    a: Configuration, b: Configuration, places: Sequence[tuple[int, int]], against: Against, metric: str
) -> Comparison:
    first = np.stack([a.tables[mine][against][metric] for mine, _ in places])
    second = np.stack([b.tables[theirs][against][metric] for _, theirs in places])
    return replace(compare(first, second), fixed=draws_nothing(a.method) and draws_nothing(b.method))
