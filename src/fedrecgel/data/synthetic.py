"""`synthetic`: generated data of any size, for benchmarks. Deterministic, made in blocks of users.

Activity is log-normal over users, popularity a power law over items; a user's items are distinct and there is no time.
Nobody has a taste: this data tests speed and memory, not recommendations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrecgel.data.interactions import MIN_INTERACTIONS, Interactions
from fedrecgel.draws import Draws
from fedrecgel.errors import DataError

USERS, ITEMS, INTERACTIONS = 10_000, 5_000, 200_000
SEED = 2026
ACTIVITY_SPREAD = 0.8
"""Standard deviation of the logarithm of a user's activity."""
POPULARITY_EXPONENT = 0.8
"""The item of rank r is drawn with weight r to minus this power."""
LARGEST_SHARE = 0.25
"""Nobody touches more of the catalogue than this."""
BLOCK = 50_000


def generate(n_users: int = USERS, n_items: int = ITEMS, n_interactions: int = INTERACTIONS) -> Interactions:
    """Exactly this many users, items and interactions.

    Raises:
        DataError: so many interactions do not fit, or are too few for every user and item.
    """
    largest = int(LARGEST_SHARE * n_items)
    least = max(MIN_INTERACTIONS * n_users, n_items)
    if least > largest * n_users // 2:
        raise DataError(
            "Five interactions per user and one per item should fit into an eighth of all pairs. "
            f"Found {n_users:,} users and {n_items:,} items: take more of both."
        )
    if not least <= n_interactions <= largest * n_users // 2:
        raise DataError(
            f"data.interactions should lie between {least:,} (five per user, one per item) and "
            f"{largest * n_users // 2:,} (an eighth of all pairs). Found {n_interactions:,}."
        )
    counts = _activity(n_users, n_interactions, largest)
    users = np.repeat(np.arange(n_users, dtype=np.int32), counts)
    items = np.empty(n_interactions, dtype=np.int32)
    cumulative = np.cumsum(np.arange(1, n_items + 1, dtype=np.float64) ** -POPULARITY_EXPONENT)
    cumulative /= cumulative[-1]
    starts = np.concatenate([[0], np.cumsum(counts)])
    for first in range(0, n_users, BLOCK):
        last = min(first + BLOCK, n_users)
        items[starts[first] : starts[last]] = _items_of(np.arange(first, last), counts[first:last], cumulative)
    _show_every_item(users, items, n_items, starts)
    return Interactions(
        name="synthetic",
        users=users,
        items=items,
        times=None,
        user_ids=list(range(n_users)),
        item_ids=list(range(n_items)),
        source="generated",
        licence="Apache-2.0",
    )


def _activity(n_users: int, n_interactions: int, largest: int) -> npt.NDArray[np.int64]:
    """Log-normal counts between five and `largest` with exactly this sum."""
    weights = np.exp(ACTIVITY_SPREAD * Draws(SEED).normal("activity", 0, np.arange(n_users), 1)[:, 0])
    low, high = 0.0, n_interactions / weights.min()
    for _ in range(200):  # the scale at which the clipped counts add up
        scale = (low + high) / 2
        counts = np.clip(scale * weights, MIN_INTERACTIONS, largest).astype(np.int64)
        low, high = (scale, high) if counts.sum() <= n_interactions else (low, scale)
    counts = np.clip(low * weights, MIN_INTERACTIONS, largest).astype(np.int64)
    room = np.flatnonzero(counts < largest)
    counts[room[: n_interactions - int(counts.sum())]] += 1
    return counts


def _items_of(
    users: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], cumulative: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Distinct items of each user, sorted; duplicates are drawn again until none is left."""
    n_items = len(cumulative)
    complete: list[npt.NDArray[np.int64]] = []
    found = np.empty(0, dtype=np.int64)
    missing, attempt = counts.copy(), 0
    while missing.any():
        owner = np.repeat(np.arange(len(users)), missing)
        nth = np.arange(len(owner)) - np.repeat(np.cumsum(missing) - missing, missing)
        drawn = np.searchsorted(cumulative, Draws(SEED).uniform("items", attempt, users[owner], nth), side="right")
        found = np.unique(np.concatenate([found, owner * n_items + np.minimum(drawn, n_items - 1)]))
        open_users = missing > 0
        missing = np.where(open_users, counts - np.bincount(found // n_items, minlength=len(users)), 0)
        done = missing[found // n_items] == 0
        complete.append(found[done])  # what is left to sort again shrinks fast
        found = found[~done]
        attempt += 1
    return np.sort(np.concatenate(complete)) % n_items


def _show_every_item(
    users: npt.NDArray[np.int32], items: npt.NDArray[np.int32], n_items: int, starts: npt.NDArray[np.int64]
) -> None:
    """Give items nobody drew to users in turn, in place of something popular, so that the catalogue is complete."""
    seen = np.bincount(items, minlength=n_items)
    unseen = np.flatnonzero(seen == 0)
    user = 0
    for item in unseen:
        while True:
            own = slice(starts[user], starts[user + 1])
            user = (user + 1) % (len(starts) - 1)
            at = own.start + int(np.argmax(seen[items[own]]))
            if seen[items[at]] > 1:
                break
        seen[items[at]] -= 1
        seen[item] += 1
        items[at] = item
