"""Everything a report is made of, read from result files: reduced experiments, records, curves, data and machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from fedrecgel.errors import RunFolderError
from fedrecgel.evaluation.metrics import metric_names
from fedrecgel.report.compare import RunComparison
from fedrecgel.report.plain import results_of
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.settings import CHANGE_NO_NUMBER, settings_fingerprint
from fedrecgel.storage import read_json
from fedrecgel.studies import EXPERIMENTS
from fedrecgel.studies.archive import DATA, DOCUMENTS
from fedrecgel.studies.cells import shown_name
from fedrecgel.studies.colours import colours_of
from fedrecgel.studies.experiment import Document
from fedrecgel.studies.labels import SEEDS, labels_of
from fedrecgel.studies.main_table import MainTable, MainTableExperiment
from fedrecgel.studies.records import Record, ResultsLog, finished_record

CURVE_K = 10
"""Cut-off of the metrics that training curves show."""


@dataclass(frozen=True)
class MetricHistory:
    """A metric over rounds: mean over seeds, and the lowest and highest of them."""

    rounds: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    megabytes: list[float]
    """What a client has sent until then, mean over all clients and seeds."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds only."""

    dataset: str
    method: str
    label: str
    records: list[Record]
    curves: dict[str, MetricHistory]

    @property
    def first(self) -> dict[str, Any]:
        """The summary of the first run."""
        return self.records[0].run


@dataclass(frozen=True)
class Collected:
    """The content of an experiments' folder."""

    root: Path
    records: list[Record]
    groups: list[Group]
    """Finished runs by configuration."""
    documents: dict[str, list[Document]]
    """Reduced experiments by name, as far as they were run: those of each packed file, each once."""
    data: dict[str, dict[str, Any]]
    environment: dict[str, Any]

    @property
    def main(self) -> MainTable | None:
        """The main table; where there is one, other parts show its rows first."""
        found = self.documents.get(MainTableExperiment.name, [None])[0]
        return found if isinstance(found, MainTable) else None

    @cached_property
    def _plain(self) -> list[RunComparison]:
        """Once for all who ask: it reads the ranks of every run and tests every pair."""
        return results_of(self.root, self.groups)

    def plain_results(self, command: str) -> list[RunComparison]:
        """What runs that no experiment made reach, one for each data set; its tables say what made them."""
        return [replace(result, command=command) for result in self._plain]

    @cached_property
    def colours(self) -> dict[str, int | None]:
        """Of every configuration by its label."""
        return colours_of({group.label: group.method for group in self.shown_groups})

    @property
    def in_order(self) -> list[Document]:
        """Reduced experiments as they stand on the page."""
        names = sorted(self.documents, key=lambda name: EXPERIMENTS[name].page_place)
        return [document for name in names for document in self.documents[name]]

    @property
    def finished(self) -> list[Record]:
        """Runs with results."""
        return [record for record in self.records if record.status == "finished"]

    @cached_property
    def shown_groups(self) -> list[Group]:
        """Those of the main table in its order, or all if there is none, named by what tells them apart."""
        if self.main is None:
            return self.groups
        place = {folder: number for number, row in enumerate(self.main.rows) for folder in row.folders}

        def first(group: Group) -> int:
            return min((place[one.folder] for one in group.records if one.folder in place), default=len(place))

        return _named(sorted((group for group in self.groups if first(group) < len(place)), key=first))


def collect(root: Path) -> Collected:
    """Read an experiments' folder, a folder of run folders, or a run folder.

    Raises:
        RunFolderError: there is no finished run in it, or packed results have several main tables.
    """
    records = list(ResultsLog(root).read().values()) or list(_scan(root))
    if not any(record.status == "finished" for record in records):
        raise RunFolderError(f"'{root}' should hold finished runs. Found none; make some with `fedrecgel experiment`.")
    environment = root / "environment.json"
    return Collected(
        root,
        records,
        groups_of(root, records),
        _documents(root),
        _data(root / DATA),
        read_json(environment, dict) if environment.exists() else {},
    )


def _documents(root: Path) -> dict[str, list[Document]]:
    """Reduced experiments of the folder, and of each packed file in it."""
    found: dict[str, list[Document]] = {}
    for name, kind in EXPERIMENTS.items():
        for path in (root / f"{name}.json", *sorted(root.glob(f"{DOCUMENTS}/*/{name}.json"))):
            if path.exists() and (document := read_json(path, kind.document)) not in found.get(name, []):
                found.setdefault(name, []).append(document)
    if len(found.get(MainTableExperiment.name, [])) > 1:
        raise RunFolderError("Packed results should hold one main table. Found several that differ: move all but one.")
    return found


def _data(folder: Path) -> dict[str, dict[str, Any]]:
    """Facts of each data set; where packed results tell different ones, those of each under a name of its own."""
    told: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(folder.rglob("*.json")):
        told.setdefault(path.stem, {})[path.parent.name] = read_json(path, dict)
    found = {}
    for name, by_archive in told.items():
        for facts in by_archive.values():
            same = [archive for archive, other in by_archive.items() if other == facts]
            found[name if len(same) == len(by_archive) else f"{name} ({', '.join(same)})"] = facts
    return found


def _scan(root: Path) -> Iterable[Record]:
    """Records of run folders that no experiment wrote."""
    for summary in sorted(root.rglob("summary.json")):
        folder = summary.parent
        if (folder / "config.toml").exists():
            where = folder.relative_to(root).as_posix()
            yield finished_record(root, where, where)


def groups_of(root: Path, records: Iterable[Record]) -> list[Group]:
    """Runs by every setting that can change a number, but the seeds, and by the path that was taken."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "finished":
            accelerated = bool(record.run.get("accelerated"))
            free = CHANGE_NO_NUMBER | SEEDS | {("local", "accelerate")}  # what was used counts, not what was asked for
            key = settings_fingerprint(record.config, free, accelerated)
            found.setdefault(key, []).append(record)
    sets: dict[str, list[list[Record]]] = {}
    for same in found.values():
        sets.setdefault(same[0].run["dataset"], []).append(sorted(same, key=lambda record: int(record.run["seed"])))
    return _named([_group(root, same) for groups in sets.values() for same in groups])


def _named(groups: Sequence[Group]) -> list[Group]:
    """The same configurations, those of each data set named by what tells them apart."""
    found = []
    for dataset in dict.fromkeys(group.dataset for group in groups):
        own = [group for group in groups if group.dataset == dataset]
        paths = [bool(group.first.get("accelerated")) for group in own]
        labels = labels_of([group.records[0].config for group in own], paths)
        found += [replace(group, label=label) for group, label in zip(own, labels, strict=True)]
    return found


def _group(root: Path, records: list[Record]) -> Group:
    first = records[0].run
    histories = [_history(RunFolder(root / record.folder)) for record in records]
    names = [*metric_names([CURVE_K], in_tables=True), "loss"]
    users = [record.run["data"]["users"] for record in records]
    curves = {metric: curve for metric in names if (curve := _curve(histories, users, metric)) is not None}
    return Group(shown_name(first["dataset"]), first["method"], first["method"], records, curves)


def _history(folder: RunFolder) -> list[dict[str, Any]]:
    """The rounds of a run whose numbers may be recorded elsewhere."""
    return folder.read_finished().history if folder.summary.exists() else folder.read_history()


def _curve(histories: list[list[dict[str, Any]]], users: list[int], metric: str) -> MetricHistory | None:
    tables = [
        {line["round"]: line[metric] for line in history if line.get(metric) is not None} for history in histories
    ]
    rounds = sorted(set.intersection(*map(set, tables))) if tables else []
    if not rounds:
        return None
    values = [[table[number] for table in tables] for number in rounds]
    sent = [
        fmean(
            sum(line["bytes_up"] for line in history if line["round"] <= number) / n_users / 1e6
            for history, n_users in zip(histories, users, strict=True)
        )
        for number in rounds
    ]
    return MetricHistory(rounds, [fmean(v) for v in values], [min(v) for v in values], [max(v) for v in values], sent)
