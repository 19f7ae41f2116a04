"""Recommendations of a trained run: the best items that a user does not have."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.data.history import History
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.engine.economies import has_kernel
from fedrecgel.engine.workers import Workers
from fedrecgel.errors import ConfigError, unknown
from fedrecgel.evaluation.top_items import top
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Download, Server
from fedrecgel.models.kernels import allow_kernels
from fedrecgel.models.kernels.compiler import usable
from fedrecgel.runs.because import reasons
from fedrecgel.tables import State

if TYPE_CHECKING:
    from fedrecgel.runs.result import Result


class Recommendation(NamedTuple):
    """One recommended item."""

    item: int | str
    score: float
    title: str | None = None
    because: tuple[int | str, ...] = ()
    """Own items that speak for it most, where the method scores from the history."""


class Best(NamedTuple):
    """The best items of some users, one row per recommendation, best first."""

    users: Int[Tensor, " r"]
    ranks: Int[Tensor, " r"]
    items: Int[Tensor, " r"]
    scores: Float[Tensor, " r"]


@dataclass(frozen=True, eq=False)
class Audience:
    """Users as their devices know them, whether they trained or were folded in."""

    method: Method
    down: Download
    """What each received."""
    private: State
    history: ItemSets
    """What each is scored with."""
    known: ItemSets
    """What each has already: never recommended."""

    @cached_property
    def compiled(self) -> bool:
        """Whether a kernel can score: for whole catalogues it is several times faster."""
        tensors = [*self.down.shared.values()]
        return all(usable(value.dtype, value.device) for value in tensors if value.is_floating_point()) and has_kernel(
            self.method
        )


def trained(result: Result) -> Audience:
    """All users of a run.

    Raises:
        ConfigError: they are on their nodes.
    """
    if not len(result.train.items):
        raise ConfigError(
            "The users of this run are on their nodes, and so are their histories and private parts. Recommend to a "
            "history (--history), or run `fedrecgel node recommend` on a node for its own users."
        )
    method = result.config.method.build()
    down = method.broadcast(Server(result.shared), torch.arange(len(result.user_ids)))
    if result.observed is None:
        warnings.warn(
            "This run was written by an earlier version, which did not keep held-out items: a user's own held-out item "
            "may be recommended. Train it again to leave them out.",
            stacklevel=3,
        )
    return Audience(method, down, result.clients, result.train, result.observed or result.train)


def user_number(result: Result, user: int | str) -> int:
    """The number of a user by its id; a number typed on a command line is text.

    Raises:
        ConfigError: the user is unknown.
    """
    names = [str(known) for known in result.user_ids]
    if str(user) not in names:
        raise ConfigError(unknown("user", str(user), names))
    return names.index(str(user))


def name_best(
    result: Result, audience: Audience, user: int, k: int, allowed: Bool[Tensor, " n"] | None = None
) -> list[Recommendation]:
    """The k best items of one user by their ids, with titles and reasons where there are any.

    Raises:
        ConfigError: k is not positive.
    """
    (best,) = best_items(audience, range(user, user + 1), k, 1, allowed)
    names, titles = result.item_ids, result.item_titles
    return [
        Recommendation(
            names[item], score, None if titles is None else titles[item], tuple(names[own] for own in because)
        )
        for item, score, because in zip(
            best.items.tolist(), best.scores.tolist(), reasons(audience, user, best.items), strict=True
        )
    ]


def best_items(
    audience: Audience,
    users: range,
    k: int,
    at_once: int,
    allowed: Bool[Tensor, " n"] | None = None,
    workers: Workers | None = None,
    *,
    compiled: bool = False,
) -> Iterator[Best]:
    """The k best items of each user among those it does not have, so many users at a time.

    Among equal scores the lower item number comes first. A user with fewer than k such items gets them all. With a
    kernel, if it may be used, or without one, on some workers or on none, scores agree to rounding.

    Raises:
        ConfigError: k is not positive.
    """
    check_k(k)
    known, n_items, method = audience.known, audience.known.n_items, audience.method

    def best(first: int) -> Best:
        ids = torch.arange(first, min(first + at_once, users.stop))
        here = slice(first, first + len(ids))
        private, history = audience.private.of(here), History(audience.history, ids)
        catalogue = torch.arange(n_items).expand(len(ids), -1)
        with allow_kernels(compiled):
            scores = method.score(private, audience.down.of(here), history, catalogue)
        owner, at = known.flat(ids.numpy())
        own = torch.from_numpy(owner), torch.from_numpy(known.items[at]).long()
        row, rank, items, values = top(scores, own, allowed, min(k, n_items))
        return Best(ids[row], rank + 1, items, values)

    return (workers.in_order if workers else map)(best, range(users.start, users.stop, at_once))


def check_k(k: int) -> None:
    """Refuse lists of no items."""
    if k < 1:
        raise ConfigError(f"k should be at least 1. Found {k}.")
