"""A run that goes on from an earlier one with new data: users and items are matched by name.

Kept are the shared tensors, where rows of new items are as the method initialises them, and the private parts of known
users. What only training needs on the server, as the moments of its optimiser, starts again, and so do schedules that
count rounds. A method that knows how many rounds it needs sums up the new data alone: nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrecgel.data.item_sets import IntArray, ItemSets
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError
from fedrecgel.methods import Method, method_label, spectral_start
from fedrecgel.methods.messages import Problem, Server
from fedrecgel.runs.choice import first_of
from fedrecgel.runs.config import Config
from fedrecgel.runs.result import Result, open_run
from fedrecgel.storage import digest_of
from fedrecgel.tables import PersonalTable, State
from fedrecgel.tensors import Ids, Tensors

IN_MEMORY = "(a result in memory)"
"""Stands for the folder of a run that has none."""
SMALL_SIZES = ((300, 400), (301, 400), (300, 401))
"""Clients and items of problems in which a tensor's axes are found; larger than any vector."""
NAMED = 100
"""Missing users and items that the summary names."""


class Names(NamedTuple):
    """Names of an earlier run beside those of this one."""

    old: IntArray
    """Places of the common names there."""
    new: IntArray
    """Their places here."""
    n_new: int
    missing: list[int | str]
    """Names that are not here."""

    @property
    def counts(self) -> dict[str, int]:
        """For the summary."""
        return {"matched": len(self.old), "added": self.n_new - len(self.new), "missing": len(self.missing)}


def match(old: Sequence[int | str], new: Sequence[int | str]) -> Names:
    """Find names again; 5 and "5" are the same, as one name that is no number makes text of all."""
    place = {str(name): number for number, name in enumerate(new)}
    found = [(number, place[str(name)]) for number, name in enumerate(old) if str(name) in place]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return Names(pairs[:, 0], pairs[:, 1], len(new), [name for name in old if str(name) not in place])


def mark_of(run: Result) -> str:
    """What tells the model of a run from all others."""
    tensors = {**{f"shared/{name}": value for name, value in run.shared.items()}, **run.clients.pack()}
    return digest_of(tensors, repr((run.user_ids, run.item_ids)))


def find_start(config: Config, given: Result | None = None) -> tuple[Config, Result | None]:
    """The run that a config continues, and the config with that run's mark; None if it continues none.

    Raises:
        ConfigError: it is another run than the config remembers, or cannot be continued with these settings.
        RunFolderError: the folder holds no finished run.
    """
    if config.run.start is None:
        return config, None
    run = given or open_run(config.run.start)
    method, mark = config.method.build(), mark_of(run)
    if run.config.method.name != config.method.name:
        raise ConfigError(
            f"A run is continued with its own method. '{config.run.start}' is of '{run.summary['method']}', here it is "
            f"'{method_label(config.method.name)}'. Leave --method out, or start anew without --from."
        )
    if not method.continues:
        raise ConfigError(
            f"{type(method).__name__} cannot be continued: its server keeps something for each client of the run, and "
            f"new clients would have none of it. Train anew, without --from."
        )
    if config.run.start_mark not in (None, mark):
        raise ConfigError(
            f"'{config.run.start}' is not the run that this one was continued from, or was changed since: its model is "
            f"another. Restore it from a copy, or name the run to continue with --from."
        )
    return replace(config, run=replace(config.run, start_mark=mark)), run


def folder_of(start: str | Path | Result) -> str:
    """How a config names a run to continue."""
    return IN_MEMORY if isinstance(start, Result) else str(Path(start).resolve())


@dataclass(frozen=True, eq=False)
class Continued:
    """An earlier run as the start of another."""

    run: Result
    folder: str
    method: Method
    problem: Problem
    split: Split
    draws: Draws

    @cached_property
    def items(self) -> Names:
        """Items there and here."""
        return match(self.run.item_ids, self.split.interactions.item_ids)

    @cached_property
    def users(self) -> Names:
        """Users there and here; a run on nodes knows none by name."""
        known = [] if self.on_nodes else self.run.user_ids
        return match(known, self.split.interactions.user_ids)

    def titles(self) -> list[str] | None:
        """Of all items here: what the new data say, else what the earlier run has; ids where nobody has any."""
        data, before = self.split.interactions, self.run.item_titles
        if data.item_titles is not None or before is None:
            return data.item_titles
        known = dict(zip(map(str, self.run.item_ids), before, strict=True))
        return [known.get(str(item), str(item)) for item in data.item_ids]

    @property
    def on_nodes(self) -> bool:
        """Whether private parts stayed on their devices."""
        return "rounds" in self.run.clients.tensors and "rounds" not in self._fresh(1).tensors

    def _fresh(self, n_clients: int) -> State:
        return self.method.init_clients(self.problem, torch.arange(n_clients), self.draws)

    def shared(self, initial: Server) -> Server:
        """The server before the first round: what was learnt, and rows of new items as they are initialised."""
        if self.method.rounds is not None:
            return initial
        axes = axes_of([self.method.init_server(problem, self.draws).shared for problem in self._small()])
        old = self.run.shared
        if old.keys() != initial.shared.keys():
            raise ConfigError(
                f"The shared tensors of '{self.folder}' should be {', '.join(sorted(initial.shared))} at these "
                f"settings. Found {', '.join(sorted(old))}. Take the settings of that run"
                + (
                    ", with method.init = 'auto': the start is learnt."
                    if spectral_start.begins(initial.shared)
                    else "."
                )
            )
        carried = {name: self._carry(name, old[name], fresh, axes[name]) for name, fresh in initial.shared.items()}
        return Server(carried, initial.kept)

    def private(self) -> tuple[Ids, State]:
        """Known users and what they keep: nobody, where nothing is kept of them."""
        if self.method.rounds is not None or not len(self.users.old):
            return torch.empty(0, dtype=torch.int64), State()
        old = self.run.clients.of(torch.from_numpy(self.users.old))
        fresh = self._fresh(1)
        names = {*fresh.tensors, *fresh.stacks}
        if names != {*old.tensors} or fresh.tables.keys() != old.tables.keys():
            raise ConfigError(
                f"The private parts in '{self.folder}' should be {', '.join(sorted(names | {*fresh.tables}))} at these "
                f"settings. Found {', '.join(sorted({*old.tensors, *old.tables}))}. Take the settings of that run."
            )
        each = [self.method.init_clients(problem, torch.arange(1), self.draws) for problem in self._small()]
        axes = axes_of([{name: state[name][0] for name in names} for state in each])
        everyone = torch.from_numpy(self.users.new)
        tensors = {}
        for name in names:
            if not axes[name] or set(axes[name]) == {None}:
                _check_shape(self.folder, name, old[name][0], fresh[name][0])
                tensors[name] = old[name].to(fresh[name])
            else:  # a table of each client
                tensors[name] = torch.stack([self._carry(name, own, fresh[name][0], axes[name]) for own in old[name]])
        return everyone, State(tensors, {name: self._table(name, old, fresh) for name in fresh.tables})

    def _small(self) -> list[Problem]:
        return [replace(self.problem, n_clients=clients, n_items=items) for clients, items in SMALL_SIZES]

    def _carry(self, name: str, old: Tensor, fresh: Tensor, axes: tuple[int | None, ...]) -> Tensor:
        """A tensor with the rows of all that is known put in."""
        found, at, to = fresh.clone(), old.to(fresh), fresh
        both = (self.users, self.items)
        for axis, kind in enumerate(axes):
            if kind is not None:
                at = at.index_select(axis, torch.from_numpy(both[kind].old).to(at.device))
                to = to.index_select(axis, torch.from_numpy(both[kind].new).to(at.device))
        _check_shape(self.folder, name, at, to)
        places = [
            torch.from_numpy(both[kind].new) if kind is not None else torch.arange(size)
            for kind, size in zip(axes, fresh.shape, strict=True)
        ]
        found[torch.meshgrid(*places, indexing="ij") if places else ...] = at
        return found

    def _table(self, name: str, old: State, fresh: State) -> PersonalTable:
        """Personal tables over the new catalogue; rows of missing items go."""
        table, (start,) = old.tables[name], fresh.tables[name].bases
        bases = tuple(self._carry(name, base, start, (1, None)) for base in table.bases)
        place = torch.full((len(self.run.item_ids),), -1)
        place[torch.from_numpy(self.items.old)] = torch.from_numpy(self.items.new)
        at, owners = place[table.at], table.owners
        keys = owners * self.problem.n_items + at
        stays = at >= 0
        order = keys[stays].argsort()
        ptr = torch.searchsorted(owners[stays].contiguous(), torch.arange(len(table.which) + 1))
        values = table.values[stays][order].to(start)
        moved = PersonalTable(bases, table.which, table.scale.to(start), ptr, at[stays][order], values)
        return PersonalTable.unpack({part: value.to(start.device) for part, value in moved.pack().items()})

    @property
    def facts(self) -> dict[str, Any]:
        """What the summary says of the start."""
        rounds = self.method.rounds
        kept = [] if rounds is not None else [*sorted(self.run.shared)]
        return {
            "run": self.run.summary.get("run"),
            "folder": self.folder,
            "users": self.users.counts,
            "items": self.items.counts,
            "interactions": self._interactions,
            "missing_users": self.users.missing[:NAMED],
            "missing_items": self.items.missing[:NAMED],
            "heldout_trained": self._heldout_trained,
            "kept": {"shared": kept, "private": rounds is None and len(self.users.old) > 0},
            "notes": self.sentences[1:],
        }

    @cached_property
    def _interactions(self) -> dict[str, int]:
        """Distinct pairs of a user and an item, there and here."""
        known = self.run.observed or self.run.train
        here = self.split.observed
        if self.on_nodes:
            return {"matched": 0, "added": len(here.items), "missing": 0}
        at = self._pairs(known)
        matched = int(here.contains(*at).sum())
        return {"matched": matched, "added": len(here.items) - matched, "missing": len(known.items) - matched}

    def _pairs(self, rows: ItemSets) -> tuple[IntArray, IntArray]:
        """Rows of the earlier run as users and items are numbered here, those alone that have both."""
        user, item = (np.full(size, -1) for size in (rows.n_users, rows.n_items))
        user[self.users.old], item[self.items.old] = self.users.new, self.items.new
        owners, items = np.repeat(user, np.diff(rows.ptr)), item[rows.items]
        both = (owners >= 0) & (items >= 0)
        return owners[both], items[both]

    @cached_property
    def _heldout_trained(self) -> float:
        """Share of users whose held-out item the earlier run trained on."""
        held_out = self.split.held_out("test")
        if self.on_nodes or not len(held_out.items):
            return 0.0
        owners, items = self._pairs(self.run.train)
        trained = ItemSets.from_pairs(
            owners.astype(np.int32), items.astype(np.int32), self.split.n_users, self.split.n_items
        )
        seen = trained.contains(held_out.owners, held_out.items)
        return len(np.unique(held_out.owners[seen])) / max(1, int((held_out.sizes > 0).sum()))

    @property
    def sentences(self) -> list[str]:
        """What is known, what is new, what is kept."""
        users, items, pairs = self.users.counts, self.items.counts, self._interactions
        found = [
            f"Continues {self.folder}: {users['matched']:,} users, {items['matched']:,} items and "
            f"{pairs['matched']:,} interactions are known, {users['added']:,}, {items['added']:,} and "
            f"{pairs['added']:,} are new."
        ]
        if self.method.rounds is not None:
            found.append(f"{type(self.method).__name__} sums up the new data from the start: nothing is carried over.")
        elif self.on_nodes:
            found.append("Private parts are not in that folder, as they stayed on their devices: all users start anew.")
        return found

    @property
    def warnings(self) -> list[str]:
        """What a reader of the numbers should know."""
        found = []
        for what, names in (("users", self.users), ("items", self.items)):
            if names.missing:
                found.append(
                    f"{len(names.missing):,} {what} of the run that was continued are not in the new data, so they are "
                    f"not in this run: {first_of(names.missing)}."
                )
        if self._interactions["missing"]:
            found.append(
                f"{self._interactions['missing']:,} interactions of the run that was continued are not in the new "
                f"data: they are not trained on again, and may be recommended."
            )
        if self._heldout_trained and self.method.rounds is None:
            found.append(
                f"The held-out item of {self._heldout_trained:.1%} of the users was trained on by the run that was "
                f"continued, so metrics are too high."
            )
        if self.run.summary["privacy"].get("epsilon") is not None and self.method.rounds is None:
            found.append(
                "The run that was continued spent a privacy budget of its own "
                f"(epsilon {self.run.summary['privacy']['epsilon']:.2f}); that of this run comes on top."
            )
        return found


def axes_of(found: Sequence[Tensors]) -> dict[str, tuple[int | None, ...]]:
    """For each axis of tensors in problems of `SMALL_SIZES`: 0 if clients are along it, 1 if items are, else None."""
    base, more_clients, more_items = found

    def kind(sizes: tuple[int, int, int]) -> int | None:
        here, clients, items = sizes
        return 0 if clients != here else 1 if items != here else None

    return {
        name: tuple(map(kind, zip(value.shape, more_clients[name].shape, more_items[name].shape, strict=True)))
        for name, value in base.items()
    }


def _check_shape(folder: str, name: str, old: Tensor, new: Tensor) -> None:
    if old.shape != new.shape:
        raise ConfigError(
            f"Sizes should be those of the run to continue. In '{folder}' {name} is of shape {tuple(old.shape)}, at "
            f"these settings {tuple(new.shape)}. Leave sizes as they are there, or start anew without --from."
        )
