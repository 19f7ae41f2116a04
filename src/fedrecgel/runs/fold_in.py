"""A user who never took part in a run: the private part is learnt from the own history, as on the own device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedrecgel.data.federation import Newcomers
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws
from fedrecgel.methods.messages import Problem
from fedrecgel.runs.choice import Items, allow, number_items
from fedrecgel.runs.recommend import Audience, Recommendation, name_best

if TYPE_CHECKING:
    from fedrecgel.runs.result import Result


@dataclass(frozen=True, eq=False)
class FoldedIn:
    """One newcomer of a run."""

    result: Result
    audience: Audience
    skipped: tuple[int | str, ...] = ()
    """Items of the history that the run does not know."""

    def recommend(
        self, k: int = 10, *, among: Items | None = None, exclude: Items | None = None
    ) -> list[Recommendation]:
        """The k best items that are not in the history, of these or not of those if lists are given.

        Raises:
            ConfigError: k is not positive, or no item is left.
        """
        return name_best(self.result, self.audience, 0, k, allow(self.result, among, exclude))


def fold_in(result: Result, items: Items) -> FoldedIn:
    """A newcomer with this history, oldest item first; an item that occurs twice counts twice.

    Warns about items that the run does not know: they are left out.

    Raises:
        ConfigError: no item is left, or the method cannot recommend to newcomers.
    """
    known, skipped = number_items(result, items, "The history")
    backwards = np.array(known[::-1], dtype=np.int32)
    rows = ItemSets.from_latest_first(np.zeros_like(backwards), backwards, 1, len(result.item_ids))
    return FoldedIn(result, newcomers(result, rows), tuple(skipped))


def newcomers(result: Result, rows: ItemSets) -> Audience:
    """Users with these histories, folded in all at once; each gets what it would get alone at its number.

    Raises:
        ConfigError: the method cannot recommend to newcomers.
    """
    config, n_users = result.config, rows.n_users
    method, dtype = config.method.build(), getattr(torch, config.run.dtype)
    down = result.welcome.of(torch.zeros(n_users, dtype=torch.int64))
    own = Newcomers(rows, config.sampling, dtype)
    if method.fold_in_rounds and method.samples_negatives:
        own.check_negatives()
    problem = Problem(len(result.user_ids), len(result.item_ids), dtype)
    draws = Draws(config.run.seed).part("fold-in")  # no number of a user who trained
    private = method.fold_in(problem, down, own, torch.arange(n_users), draws)
    return Audience(method, down, private, rows, rows)
