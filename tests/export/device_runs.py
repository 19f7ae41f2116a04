"""Small trained runs, their users as a device knows them, and what torch says about them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tests.builders import random_interactions, tiny

import fedrecgel
from fedrecgel.data.history import History
from fedrecgel.data.split import leave_one_out
from fedrecgel.methods import METHODS
from fedrecgel.methods.messages import Server
from fedrecgel.runs.result import Result

N_USERS, N_ITEMS = 40, 130
Scores = npt.NDArray[np.float64]


@cache
def small_run(name: str, **options: object) -> Result:
    """A method trained on a few users."""
    split = leave_one_out(random_interactions(N_USERS, N_ITEMS))
    settings: dict[str, Any] = {**tiny(name), **options}
    return fedrecgel.train(name, split, rounds=METHODS[name](**settings).rounds or 3, **settings)


def history_of(run: Result, user: int) -> list[int | str]:
    """The ids of a user's training rows, oldest first, repeats included."""
    rows = slice(run.train.ptr[user], run.train.ptr[user + 1])
    items, counts, recency = run.train.items[rows], run.train.counts[rows], run.train.recency
    assert recency is not None
    return [run.item_ids[items[place]] for place in np.argsort(-recency[rows]) for _ in range(counts[place])]


def torch_scores(run: Result, user: int) -> Scores:
    """What the method itself gives every item, for a user who trained."""
    ids, method = torch.tensor([user]), run.config.method.build()
    down = method.broadcast(Server(run.shared), ids)
    everything = torch.arange(len(run.item_ids))[None]
    found = method.score(run.clients.of(slice(user, user + 1)), down, History(run.train, ids), everything)
    return np.asarray(found[0].double().numpy())
