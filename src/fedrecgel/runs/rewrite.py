"""A finished run folder written anew, all of it or nothing: forget a user, keep titles.

The new files are written beside the old ones, the summary last, and then moved into place. Whoever is stopped between
the moves leaves a folder that is refused with a sentence, until the next change of it completes them.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

import numpy as np
import torch

from fedrecgel.data.item_sets import IntArray
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Problem
from fedrecgel.runs.continued import SMALL_SIZES, axes_of
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.ranks_file import RankFile
from fedrecgel.runs.result import Result, open_run
from fedrecgel.storage import make_folder, write_text
from fedrecgel.tensors import Tensors

NO_CHECKPOINT = "no-checkpoint"
"""Says beside new files that the old checkpoint goes."""


@dataclass(frozen=True)
class Forgotten:
    """What was removed, and what could not be."""

    found: bool
    """Whether the folder held anything of the user."""
    sentences: tuple[str, ...]


def forget(path: str | Path, user: int | str) -> Forgotten:
    """Remove a user's private part, history and ranks from a finished run, and its checkpoint, which has them too.

    Raises:
        RunFolderError: there is no finished run, or another process writes to it.
        StorageError: a file is damaged, or could not be written.
    """
    folder = RunFolder(Path(path))
    with folder.lock() if folder.config.exists() else nullcontext():
        complete(folder)
        run = open_run(path)
        names = [str(name) for name in run.user_ids]
        if "rounds" in run.clients.tensors:
            return Forgotten(False, (f"'{path}' holds no users: they stayed on their nodes. Nothing was changed.",))
        if str(user) not in names:
            return Forgotten(False, (f"'{path}' holds nothing of a user '{user}'. Nothing was changed.",))
        gone = names.index(str(user))
        rest = np.delete(np.arange(len(names)), gone)
        if not len(rest):
            raise ConfigError(f"'{user}' is the only user of '{path}'. Delete the folder.")
        replace_run(folder, without(run, rest))
    return Forgotten(True, (f"Private part, history and ranks of user '{user}' are gone from {path}.", *_remains(run)))


def without(run: Result, rest: IntArray) -> Result:
    """A run with these of its users alone."""
    at, method = torch.from_numpy(rest), run.config.method.build()
    ranks = {name: found for name, ranks in run.ranks.against.items() if (found := _of(ranks, at, len(run.user_ids)))}
    forgotten = run.summary.get("forgotten_users", 0) + len(run.user_ids) - len(rest)
    return replace(
        run,
        summary={**run.summary, "forgotten_users": forgotten},
        shared=_of_clients(method, run.shared, at, run.config.run.seed),
        clients=run.clients.of(at),
        train=run.train.of(rest),
        observed=None if run.observed is None else run.observed.of(rest),
        user_ids=[run.user_ids[user] for user in rest],
        # A name of its own: user by user it can be compared with no other run any more.
        ranks=RankFile(f"forgotten-{token_hex(16)}", ranks if len(ranks) == len(run.ranks.against) else {}),
    )


def _of(ranks: Ranks, users: torch.Tensor, n_users: int) -> Ranks | None:
    """Ranks of these users; None where it is not clear which are theirs."""
    if ranks.ptr is None:
        if not len(ranks.above):
            return ranks
        return Ranks(ranks.above[users], ranks.tied[users]) if len(ranks.above) == n_users else None
    if len(ranks.ptr) != n_users + 1:
        return None
    mine = torch.cat([torch.arange(int(ranks.ptr[user]), int(ranks.ptr[user + 1])) for user in users.tolist()])
    sizes = ranks.ptr.diff()[users]
    return Ranks(ranks.above[mine], ranks.tied[mine], torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))


def _of_clients(method: Method, shared: Tensors, users: torch.Tensor, seed: int) -> Tensors:
    """Shared tensors of these clients, where a server has something for each."""
    if method.continues:
        return shared
    axes = axes_of([method.init_server(Problem(*size), Draws(seed)).shared for size in SMALL_SIZES])
    found = dict(shared)
    for name, kinds in axes.items():
        for axis, kind in enumerate(kinds if name in shared else ()):
            if kind == 0:
                found[name] = found[name].index_select(axis, users)
    return found


def _remains(run: Result) -> list[str]:
    """What a shared model still has of a user who took part in it."""
    rounds, privacy = run.summary["protocol"]["selected_round"], run.summary["privacy"]
    sent = ", ".join(privacy["leaves_device"])
    found = [
        f"The shared model still contains what the user's uploads ({sent}) added to it in up to {rounds} rounds, and "
        f"so do the metrics: files can be emptied, training cannot be undone. To remove it, train again without the "
        f"user.",
        "The data set, copies of this folder, exports and lists of recommendations are elsewhere and are not changed.",
        "The checkpoint is gone: --resume cannot add rounds to this run, --from can continue it.",
    ]
    if privacy.get("epsilon") is not None:
        found.insert(1, f"Differential privacy bounds what can be told from it: epsilon {privacy['epsilon']:.2f}.")
    return found


def settle(path: str | Path) -> None:
    """Complete a change that was stopped."""
    folder = RunFolder(Path(path))
    if folder.rewritten.exists():
        with folder.lock():
            complete(folder)


def keep_titles(path: str | Path, run: Result) -> None:
    """Write a run's titles into its folder."""
    folder = RunFolder(Path(path))
    with folder.lock():
        complete(folder)
        replace_run(folder, replace(open_run(path), item_titles=run.item_titles), checkpoint=True)


def replace_run(folder: RunFolder, run: Result, *, checkpoint: bool = False) -> None:
    """Put a run in the place of the one in its folder; the checkpoint, which is the old one's, goes unless it fits."""
    room = RunFolder(folder.rewritten)
    shutil.rmtree(room.path, ignore_errors=True)
    make_folder(room.path)
    write_text(room.config, run.config.to_toml())
    if not checkpoint:
        write_text(room.path / NO_CHECKPOINT, "")
    run.write_model(room)
    complete(folder)


def complete(folder: RunFolder) -> None:
    """Move files that were written to the end into place; throw others away."""
    room = RunFolder(folder.rewritten)
    if room.summary.exists():
        if (room.path / NO_CHECKPOINT).exists():
            for entry in folder.checkpoint.parent.iterdir() if folder.checkpoint.parent.is_dir() else ():
                if entry.name == ".lock":
                    continue
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for name in ("config", "metrics", "server", "clients", "ranks", "summary"):  # the summary is the last of them
            new: Path = getattr(room, name)
            if new.exists():
                new.replace(getattr(folder, name))
    shutil.rmtree(room.path, ignore_errors=True)
