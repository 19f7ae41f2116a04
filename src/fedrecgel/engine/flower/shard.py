"""A shard: the users one node hosts, as a folder on its disk.

`data.safetensors` holds their training rows, held-out items and candidates, and facts that are the same on every node:
sizes, catalogue, fingerprint of the whole split. `state/` holds what these users learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from fedrecgel.data.interactions import Interactions
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.data.split import NO_ITEM, Split, SplitSettings
from fedrecgel.errors import DataError
from fedrecgel.storage import read_tensors, write_tensors
from fedrecgel.tensors import Ids

DATA = "data.safetensors"
Facts = Mapping[str, Any]
"""What every node and the server know of the data: nothing about a single user."""


class WholeData(msgspec.Struct, forbid_unknown_fields=True):
    """These facts, by schema."""

    name: str
    n_users: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    n_interactions: Annotated[int, msgspec.Meta(ge=0)]
    item_ids: Annotated[list[int | str], msgspec.Meta(min_length=2)]
    timed: bool
    min_interactions: int
    settings: SplitSettings
    fingerprint: str


@dataclass(frozen=True, eq=False)
class PartOfSplit(Split):
    """A split of which only some users, or none, are known here; facts about the whole came with them."""

    facts: Facts

    @property
    def fingerprint(self) -> str:
        """That of the whole split."""
        return str(self.facts["fingerprint"])


@dataclass(frozen=True, eq=False)
class Elsewhere(Interactions):
    """Interactions that are not here, and how many they are."""

    n_rows: int = 0

    def __len__(self) -> int:
        return self.n_rows


@dataclass(frozen=True)
class Shard:
    """Some users of a split."""

    folder: Path
    users: Ids
    """Their numbers in the whole federation."""
    facts: Facts
    split: PartOfSplit
    """The whole federation's numbering, but only these users have data."""
    user_ids: Sequence[int | str]
    """What they are called outside."""

    @property
    def state(self) -> Path:
        """Where their private state is kept."""
        return self.folder / "state"


@dataclass(frozen=True)
class _About:
    facts: dict[str, Any]
    user_ids: list[int | str]


def facts_of(split: Split) -> dict[str, Any]:
    """What may be known by all: sizes, settings, the catalogue, and a fingerprint."""
    return {
        "name": split.interactions.name,
        "n_users": split.n_users,
        "n_interactions": len(split.interactions),
        "item_ids": split.interactions.item_ids,
        "timed": split.interactions.times is not None,
        "min_interactions": split.interactions.min_interactions,
        "settings": asdict(split.settings),
        "fingerprint": split.fingerprint,
    }


def write_shards(split: Split, folder: Path, n_nodes: int) -> list[Path]:
    """Deal all users out to so many folders, in blocks of neighbouring numbers.

    Raises:
        DataError: users have several held-out items: the letters of nodes have room for one.
    """
    if split.several:
        raise DataError(f"On nodes split.kind should be leave-one-out. Found {split.settings.kind}.")
    places = []
    for number, users in enumerate(np.array_split(np.arange(split.n_users), n_nodes)):
        place = folder / f"node-{number}"
        write_shard(split, users, place)
        places.append(place)
    return places


def write_shard(split: Split, users: npt.NDArray[np.int64], folder: Path) -> None:
    """The data of these users, in ascending order, in a folder that `fedrecgel node` serves."""
    ids = split.interactions.user_ids
    arrays: dict[str, npt.NDArray[Any]] = {"users": users, "test": split.test[users]}
    arrays["candidates"] = split.candidates[users]
    for name in ("validation", "validation_candidates"):
        found = getattr(split, name)
        if found is not None:
            arrays[name] = found[users]
    for name, sets in (("train", split.train), ("observed", split.observed)):
        _, at = sets.flat(users)
        arrays |= {f"{name}_sizes": sets.sizes(users), f"{name}_items": sets.items[at]}
        arrays[f"{name}_counts"] = sets.counts[at]
        if sets.recency is not None:
            arrays[f"{name}_recency"] = sets.recency[at]
    tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
    about = {"facts": facts_of(split), "user_ids": [ids[user] for user in users]}
    write_tensors(folder / DATA, tensors, about, split.fingerprint)


def read_shard(place: Path) -> Shard:
    """Open a shard: its folder, or the data file in it.

    Raises:
        DataError: there is none.
    """
    folder = place.parent if place.name == DATA else place
    if not (folder / DATA).is_file():
        raise DataError(f"A shard should be a folder with {DATA}, as `fedrecgel data shard` makes it. Found '{place}'.")
    tensors, about, _ = read_tensors(folder / DATA, _About)
    facts, users = about.facts, tensors["users"].numpy()
    blank = blank_split(facts)
    n_users = blank.n_users

    def spread(name: str, empty: npt.NDArray[Any]) -> npt.NDArray[Any]:
        empty[users] = tensors[name].numpy()
        return empty

    def sets(name: str) -> ItemSets:
        sizes = spread(f"{name}_sizes", np.zeros(n_users, dtype=np.int64))
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        items, counts = (tensors[f"{name}_{part}"].numpy() for part in ("items", "counts"))
        recency = tensors[f"{name}_recency"].numpy() if f"{name}_recency" in tensors else None
        return ItemSets(blank.n_items, ptr, items, counts, recency)

    validation = validation_candidates = None
    if "validation" in tensors:
        validation = spread("validation", np.full(n_users, NO_ITEM, dtype=np.int64))
        validation_candidates = spread("validation_candidates", np.zeros_like(blank.candidates))
    split = replace(
        blank,
        train=sets("train"),
        observed=sets("observed"),
        test=spread("test", np.full(n_users, NO_ITEM, dtype=np.int64)),
        candidates=spread("candidates", np.zeros_like(blank.candidates)),
        validation=validation,
        validation_candidates=validation_candidates,
    )
    return Shard(folder, torch.from_numpy(users), facts, split, about.user_ids)


def rejoin(shards: Sequence[Shard], kind: Literal["train", "observed"] = "train") -> tuple[ItemSets, list[Any]]:
    """Training rows, or all items, and names of all users, where their shards lie on one disk."""
    first = shards[0].split
    owners, items, counts, recency = [], [], [], []
    names: list[Any] = list(range(first.n_users))
    for shard in shards:
        train: ItemSets = getattr(shard.split, kind)
        owners.append(np.repeat(np.arange(first.n_users), np.diff(train.ptr)))
        items.append(train.items)
        counts.append(train.counts)
        if train.recency is not None:
            recency.append(train.recency)
        for user, name in zip(shard.users.tolist(), shard.user_ids, strict=True):
            names[user] = name
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    ptr = np.searchsorted(owner[order], np.arange(first.n_users + 1))
    latest = np.concatenate(recency)[order] if recency else None
    return ItemSets(first.n_items, ptr, np.concatenate(items)[order], np.concatenate(counts)[order], latest), names


def blank_split(facts: Facts) -> PartOfSplit:
    """A split without any user's data: all the server of a deployment has.

    Its arrays have the size of the whole federation, but pages that are never written take no memory.
    """
    n_users, item_ids = facts["n_users"], facts["item_ids"]
    nothing = np.zeros(0, dtype=np.int32)
    settings = msgspec.convert(facts["settings"], SplitSettings)
    interactions = Elsewhere(
        name=facts["name"],
        users=nothing,
        items=nothing,
        times=np.zeros(0, dtype=np.int64) if facts["timed"] else None,
        user_ids=list(range(n_users)),
        item_ids=item_ids,
        min_interactions=facts["min_interactions"],
        n_rows=facts["n_interactions"],
    )
    empty = ItemSets(len(item_ids), np.zeros(n_users + 1, dtype=np.int64), nothing, nothing)
    candidates = np.zeros((n_users, settings.candidates), dtype=np.int32)
    validation = np.full(n_users, NO_ITEM, dtype=np.int64) if settings.validation else None
    return PartOfSplit(
        interactions,
        settings,
        train=empty,
        observed=empty,
        test=np.full(n_users, NO_ITEM, dtype=np.int64),
        candidates=candidates,
        validation=validation,
        validation_candidates=None if validation is None else candidates,
        facts=facts,
    )
