"""Everything a report is made of, read from result files: reduced experiments, records, curves, data and machine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import msgspec

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.runs.config import read_sections
from fedrecgel.runs.folder import RunFolder
from fedrecgel.studies.ablation import Ablation
from fedrecgel.studies.cells import shown_name
from fedrecgel.studies.landscape import Landscape
from fedrecgel.studies.main_table import MainTable
from fedrecgel.studies.quirks import Quirks
from fedrecgel.studies.records import Record, ResultsLog, finished_record
from fedrecgel.studies.sensitivity import Sensitivity

T = TypeVar("T")
CURVE_METRICS = ("HR@10", "NDCG@10", "loss")


@dataclass(frozen=True)
class Curve:
    """A metric over rounds: mean over seeds, and the lowest and highest of them."""

    rounds: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only."""

    dataset: str
    method: str
    label: str
    records: list[Record]
    curves: dict[str, Curve]

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
    main: MainTable | None
    sensitivity: Sensitivity | None
    ablation: Ablation | None
    landscape: Landscape | None
    quirks: Quirks | None
    data: dict[str, dict[str, Any]]
    environment: dict[str, Any]

    @property
    def finished(self) -> list[Record]:
        """Runs with results."""
        return [record for record in self.records if record.status == "finished"]

    @property
    def shown_groups(self) -> list[Group]:
        """Those of the main table, or all if there is none."""
        if self.main is None:
            return self.groups
        folders = {folder for row in self.main.rows for folder in row.folders}
        return [group for group in self.groups if any(record.folder in folders for record in group.records)]


def collect(root: Path) -> Collected:
    """Read an experiments' folder, a folder of run folders, or a run folder.

    Raises:
        RunFolderError: there is no finished run in it.
    """
    records = list(ResultsLog(root).read().values()) or list(_scanned(root))
    if not any(record.status == "finished" for record in records):
        raise RunFolderError(f"'{root}' should hold finished runs. Found none; make some with `fedrecgel experiment`.")
    data = {path.stem: _json(path) for path in sorted((root / "data").glob("*.json"))}
    environment = root / "environment.json"
    return Collected(
        root,
        records,
        groups_of(root, records),
        _document(root / "main-table.json", MainTable),
        _document(root / "sensitivity.json", Sensitivity),
        _document(root / "ablation.json", Ablation),
        _document(root / "landscape.json", Landscape),
        _document(root / "quirks.json", Quirks),
        data,
        _json(environment) if environment.exists() else {},
    )


def _document(path: Path, kind: type[T]) -> T | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise StorageError(f"'{path}' cannot be read: {error}. Run its experiment again.") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StorageError(f"'{path}' cannot be read: {error}.") from error
    return found


def _scanned(root: Path) -> Iterable[Record]:
    """Records of run folders that no experiment wrote."""
    for summary in sorted(root.rglob("summary.json")):
        folder = summary.parent
        if (folder / "config.toml").exists():
            config = read_sections(folder / "config.toml")
            where = folder.relative_to(root).as_posix()
            yield finished_record(root, where, where, config)


def groups_of(root: Path, records: Iterable[Record]) -> list[Group]:
    """Runs by everything but the seed."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "finished":
            shape = {name: dict(values) for name, values in record.config.items()}
            shape.get("run", {}).pop("seed", None)
            shape.pop("local", None)
            shape.pop("checkpoint", None)
            shape.get("data", {}).pop("dir", None)
            found.setdefault(json.dumps(shape, sort_keys=True), []).append(record)
    return [_group(root, sorted(same, key=lambda record: int(record.run["seed"]))) for same in found.values()]


def _group(root: Path, records: list[Record]) -> Group:
    first = records[0].run
    histories = [RunFolder(root / record.folder).read_history() for record in records]
    curves = {metric: curve for metric in CURVE_METRICS if (curve := _curve(histories, metric)) is not None}
    return Group(shown_name(first["dataset"]), first["method"], group_label(records[0].config), records, curves)


def group_label(config: dict[str, Any]) -> str:
    """The method, and what tells its configurations apart."""
    method = config["method"]
    parts = [method["name"]]
    if "rho_co" in method:
        parts.append(f"ρ_co {method['rho_co']:g}, ρ_ur {method['rho_ur']:g}")
    return " ".join(parts)


def _curve(histories: list[list[dict[str, Any]]], metric: str) -> Curve | None:
    tables = [{line["round"]: line[metric] for line in history if metric in line} for history in histories]
    rounds = sorted(set.intersection(*map(set, tables))) if tables else []
    if not rounds:
        return None
    values = [[table[number] for table in tables] for number in rounds]
    return Curve(rounds, [fmean(v) for v in values], [min(v) for v in values], [max(v) for v in values])
