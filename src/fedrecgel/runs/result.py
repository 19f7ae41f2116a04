"""Result: a trained run, in memory or opened from its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedrecgel.data.item_sets import ItemSets
from fedrecgel.errors import RunFolderError
from fedrecgel.methods import method_label
from fedrecgel.runs.config import Config, read_config
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.ranks_file import RankFile, read_ranks, write_ranks
from fedrecgel.runs.recommend import best_items, user_number, write_recommendations
from fedrecgel.storage import read_tensors, write_tensors, write_text
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors

TRAIN = ("train_ptr", "train_items", "train_counts")
"""A client's own training rows: kept with its private tensors, to score with and to leave out of recommendations."""
RECENCY = "train_recency"
"""The order of these rows, where the data have one."""


class Recommendation(NamedTuple):
    """One recommended item."""

    item: int | str
    score: float


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run: its numbers and its model."""

    config: Config
    summary: dict[str, Any]
    history: list[dict[str, Any]]
    """One entry per round, as in metrics.jsonl."""
    shared: Tensors
    clients: State
    train: ItemSets
    user_ids: list[int] | list[str]
    item_ids: list[int] | list[str]
    ranks: RankFile
    """Every user's rank, for paired tests."""

    @property
    def metrics(self) -> dict[str, float]:
        """HR@K, NDCG@K and MRR against the candidates."""
        return dict(self.summary["metrics"])

    @property
    def metrics_full(self) -> dict[str, float]:
        """HR@K, NDCG@K and MRR against the whole catalogue; empty if `evaluation.full` was off."""
        return dict(self.summary["metrics_full"] or {})

    @property
    def reference(self) -> dict[str, dict[str, float]]:
        """The popularity row; empty where it was withheld, see `evaluation.reference`."""
        return dict(self.summary["reference"])

    def recommend(self, user: int | str, k: int = 10) -> list[Recommendation]:
        """The k best items for a user among those it has not trained on.

        Raises:
            ConfigError: the user is unknown, or k is not positive.
        """
        number = user_number(self, user)
        (best,) = best_items(self, range(number, number + 1), k)
        pairs = zip(best.items.tolist(), best.scores.tolist(), strict=True)
        return [Recommendation(self.item_ids[item], score) for item, score in pairs]

    def recommend_all(self, path: str | Path, k: int = 10) -> int:
        """Write the k best items of every user to a .parquet or .csv file; returns its rows.

        Raises:
            ConfigError: the name ends otherwise, or k is not positive.
            StorageError: it could not be written.
        """
        return write_recommendations(self, Path(path), k)

    def save(self, path: str | Path) -> None:
        """Write a run folder that `fedrecgel.open` reads.

        Raises:
            RunFolderError: the folder holds something else.
        """
        folder = RunFolder(Path(path))
        if folder.claim(self.config.to_dict(), resume=False) == "finished":
            folder.check_data(self.summary["protocol"]["fingerprint"])
            return
        write_text(folder.config, self.config.to_toml())
        write_text(folder.metrics, "".join(json.dumps(line) + "\n" for line in self.history))
        self.write_model(folder)

    def write_model(self, folder: RunFolder) -> None:
        """The model, then the summary: a folder with a summary is complete."""
        write_tensors(folder.server, self.shared, {"item_ids": self.item_ids})
        rows = (self.train.ptr, self.train.items, self.train.counts)
        own = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in zip(TRAIN, rows, strict=True)}
        if self.train.recency is not None:
            own[RECENCY] = torch.from_numpy(np.ascontiguousarray(self.train.recency))
        write_tensors(folder.clients, {**self.clients.pack(), **own}, {"user_ids": self.user_ids})
        write_ranks(folder.ranks, self.ranks)
        write_text(folder.summary, json.dumps(self.summary, indent=1) + "\n")


def open_run(path: str | Path) -> Result:
    """Open the run folder of a finished run.

    Raises:
        RunFolderError: there is no finished run.
        StorageError: a file is missing or damaged.
    """
    folder = RunFolder(Path(path))
    if not folder.config.exists():
        raise RunFolderError(f"'{path}' should be a run folder. It has no config.toml.")
    summary, history, config = folder.read_summary(), folder.read_history(), read_config(folder.config)
    if summary["method"] != method_label(config.method.name):
        raise RunFolderError(f"'{path}' mixes two runs: config.toml and summary.json name different methods.")
    if not folder.server.exists():
        raise RunFolderError(
            f"'{path}' holds the results of a run, but no model. Experiments keep models with --keep-models; or train "
            f"it again: fedrecgel train {folder.config} --out …"
        )
    shared, catalogue = read_tensors(folder.server)
    clients, people = read_tensors(folder.clients)
    if "item_ids" not in catalogue or "user_ids" not in people:
        raise RunFolderError(f"'{path}' should hold the tensors of one run. Found files of something else.")
    ptr, items, counts = (clients.pop(name).numpy() for name in TRAIN)
    recency = clients.pop(RECENCY).numpy() if RECENCY in clients else None
    train = ItemSets(len(catalogue["item_ids"]), ptr, items, counts, recency)
    private, ranks = State.unpack(clients), read_ranks(folder.ranks)
    return Result(config, summary, history, shared, private, train, people["user_ids"], catalogue["item_ids"], ranks)
