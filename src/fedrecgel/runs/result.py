"""Result: a trained run, in memory or opened from its folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fedrecgel.data.item_sets import ItemSets
from fedrecgel.errors import ConfigError, RunFolderError
from fedrecgel.methods import method_label
from fedrecgel.methods.messages import Download, Server
from fedrecgel.runs import notebook
from fedrecgel.runs.choice import Items, allow, read_titles
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.everyone import write_recommendations
from fedrecgel.runs.fold_in import FoldedIn, fold_in
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.ranks_file import RankFile, read_ranks, write_ranks
from fedrecgel.runs.recommend import Recommendation, name_best, trained, user_number
from fedrecgel.storage import read_tensors, write_tensors, write_text
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAIN = ("train_ptr", "train_items", "train_counts")
"""A client's own training rows: kept with its private tensors, to score with and to leave out of recommendations."""
Rows = npt.NDArray[Any]
RECENCY = "train_recency"
"""The order of these rows, where the data have one."""
KNOWN = ("known_ptr", "known_items")
"""All items a client is known to have, those held out included: never recommended."""


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
    observed: ItemSets | None = None
    """All items that each user is known to have, those held out included; None for a run of an earlier version."""
    item_titles: list[str] | None = None
    """What people call each item."""

    def __repr__(self) -> str:
        """One line: a model of millions of numbers is no text."""
        said = self.summary
        shown = {name: value for name, value in self.metrics.items() if name.endswith("@10")}
        numbers = ", ".join(f"{name} {100 * value:.2f}" for name, value in shown.items()) or "nothing measured"
        name = method_label(said["method"])
        return f"<Result of {name} on {said['dataset']}, seed {said['seed']}, {said['rounds']} rounds: {numbers}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: both rankings beside popularity."""
        return notebook.as_html(self)

    def history_frame(self) -> Any:
        """Every round as a row of a data frame: loss, seconds, bytes and, where it was evaluated, metrics.

        Raises:
            ConfigError: neither pandas nor polars is installed.
        """
        return notebook.history_frame(self.history)

    def plot(self, metric: str = "NDCG@10") -> Figure:
        """The metric over rounds beside popularity, and the loss, as a figure of matplotlib (extra `report`).

        Raises:
            ConfigError: matplotlib is missing, or the metric was not measured.
        """
        return notebook.plot(self, metric)

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

    def recommend(
        self,
        user: int | str | None = None,
        k: int = 10,
        *,
        history: Items | None = None,
        among: Items | None = None,
        exclude: Items | None = None,
    ) -> list[Recommendation]:
        """The k best items for a user of the run, or for somebody with this history, oldest item first.

        Never an item that the user is known to have. Of a list if `among` is given, and none of the list `exclude`.
        Warns about items of these lists that the run does not know.

        Raises:
            ConfigError: the user is unknown, no item of the history is known, the method cannot recommend to users
                who never took part, or k is not positive.
        """
        if (user is None) == (history is None):
            raise ConfigError("Recommendations are for a user or for a history. Give one of them.")
        if history is not None:
            return self.fold_in(history).recommend(k, among=among, exclude=exclude)
        assert user is not None  # as one of them is
        return name_best(self, trained(self), user_number(self, user), k, allow(self, among, exclude))

    @cached_property
    def welcome(self) -> Download:
        """What one newcomer receives; what devices derive from it is derived once for all of them.

        Raises:
            ConfigError: the method cannot recommend to users who never took part.
        """
        return self.config.method.build().welcome(Server(self.shared), 1)

    def with_titles(self, path: str | Path) -> Result:
        """The same run with titles from a .csv or .parquet file with columns `item` and `title`.

        Raises:
            DataError: it cannot be read, or has titles for other items only.
        """
        return replace(self, item_titles=read_titles(path, self.item_ids))

    def fold_in(self, items: Items) -> FoldedIn:
        """A user who never took part, with this history, oldest item first.

        The private part is learnt from these items with the shared part as it is; nothing of it is kept in the run.
        Warns about items that the run does not know.

        Raises:
            ConfigError: no item is known, or the method cannot recommend to users who never took part.
        """
        return fold_in(self, items)

    def recommend_all(
        self, path: str | Path, k: int = 10, *, among: Items | None = None, exclude: Items | None = None
    ) -> int:
        """Write the k best items of every user to a .parquet or .csv file; returns its rows.

        Raises:
            ConfigError: the name ends otherwise, or k is not positive.
            StorageError: it could not be written.
        """
        return write_recommendations(self, Path(path), k, allow(self, among, exclude))

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
        self.write_model(folder)

    def write_model(self, folder: RunFolder) -> None:
        """The model, then the summary: a folder with a summary is complete."""
        run = str(self.summary.get("run", self.summary["protocol"]["fingerprint"]))  # the latter for an earlier version
        rows = (self.train.ptr, self.train.items, self.train.counts)
        own = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in zip(TRAIN, rows, strict=True)}
        if self.train.recency is not None:
            own[RECENCY] = torch.from_numpy(np.ascontiguousarray(self.train.recency))
        if self.observed is not None:
            known: tuple[Rows, Rows] = (self.observed.ptr, self.observed.items)
            copies = (torch.from_numpy(value.copy()) for value in known)  # a final run has one for both
            own |= dict(zip(KNOWN, copies, strict=True))
        private = {**self.clients.pack(), **own}
        catalogue = {"item_ids": self.item_ids, "item_titles": self.item_titles}
        files = {
            folder.server.name: write_tensors(folder.server, self.shared, catalogue, run),
            folder.clients.name: write_tensors(folder.clients, private, {"user_ids": self.user_ids}, run),
            folder.ranks.name: write_ranks(folder.ranks, self.ranks, run),
        }
        folder.write_summary({**self.summary, "run": run}, self.config.to_dict(), self.history, files)


@dataclass(frozen=True)
class _Catalogue:
    item_ids: list[int | str]
    item_titles: list[str] | None = None


@dataclass(frozen=True)
class _People:
    user_ids: list[int | str]


def open_run(path: str | Path) -> Result:
    """Open the run folder of a finished run; every file is compared with its checksum.

    Warns if the run was made by an earlier version, which wrote none.

    Raises:
        RunFolderError: there is no finished run, or its files belong to different ones.
        StorageError: a file is missing or damaged.
    """
    folder = RunFolder(Path(path))
    summary, history, settings, files = folder.read_finished()
    config = from_dict(settings)
    if summary["method"] != method_label(config.method.name):
        raise RunFolderError(f"'{path}' mixes two runs: config.toml and summary.json name different methods.")
    if not folder.server.exists():
        raise RunFolderError(
            f"'{path}' holds the results of a run, but no model. Experiments keep models with --keep-models; or train "
            f"it again: fedrecgel train {folder.config} --out …"
        )

    def expected(file: Path) -> dict[str, Any]:
        return {"unchecked": True} if files is None else {"run": summary["run"], "sha256": files.get(file.name, "")}

    shared, catalogue, _ = read_tensors(folder.server, _Catalogue, **expected(folder.server))
    clients, people, _ = read_tensors(folder.clients, _People, **expected(folder.clients))
    ranks = read_ranks(folder.ranks, **({} if files is None else expected(folder.ranks)))
    try:
        ptr, items, counts = (clients.pop(name).numpy() for name in TRAIN)
        recency = clients.pop(RECENCY).numpy() if RECENCY in clients else None
        n_items = len(catalogue.item_ids)
        _check_rows(ptr, items, counts, n_items, len(people.user_ids))
        _check_titles(catalogue)
        observed = None
        if KNOWN[0] in clients:
            known_ptr, known_items = (clients.pop(name).numpy() for name in KNOWN)
            ones = np.ones_like(known_items)
            _check_rows(known_ptr, known_items, ones, n_items, len(people.user_ids))
            observed = ItemSets(n_items, known_ptr, known_items, ones)
        train, private = ItemSets(len(catalogue.item_ids), ptr, items, counts, recency), State.unpack(clients)
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"'{path}' should hold the tensors of one run. Found files of something else.") from error
    user_ids, item_ids = _names(people.user_ids), _names(catalogue.item_ids)
    return Result(
        config, summary, history, shared, private, train, user_ids, item_ids, ranks, observed, catalogue.item_titles
    )


def _check_rows(ptr: Rows, items: Rows, counts: Rows, n_items: int, n_users: int) -> None:
    """Refuse rows that are not those of these users and items: files of earlier versions have no checksum."""
    whole = len(ptr) == n_users + 1 and ptr[0] == 0 and ptr[-1] == len(items) == len(counts)
    if not whole or bool((np.diff(ptr) < 0).any()) or bool(((items < 0) | (items >= n_items)).any()):
        raise ValueError("its training rows do not fit its users and items")


def _check_titles(catalogue: _Catalogue) -> None:
    if catalogue.item_titles is not None and len(catalogue.item_titles) != len(catalogue.item_ids):
        raise ValueError("its titles are not those of its items")


def _names(ids: list[int | str]) -> list[int] | list[str]:
    """Ids of users or items are all numbers or all text."""
    numbers = [name for name in ids if isinstance(name, int)]
    return numbers if len(numbers) == len(ids) else [str(name) for name in ids]
