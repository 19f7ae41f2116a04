"""What a reader of results should know about the data behind them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedrecgel.data.split import Split

REPEATED, UNSEEN, TIED, DROPPED, HEAD = 0.01, 0.05, 0.10, 0.10, 0.25
"""A fraction above these is worth a warning; HEAD is the share of interactions of the top 1% of items."""
SMALL_CATALOGUE = 5
"""Fewer items than this many times the candidates is worth a warning."""


@dataclass(frozen=True)
class Audit:
    """Counts and fractions (0..1) of a split, and what they mean in words."""

    split: str
    """Its kind."""
    tested_users: int
    """Users with held-out items."""
    tested_items: int
    """Held-out items of all of them."""
    duplicate_pairs: int
    """User-item pairs that occur more than once."""
    dropped_users: int
    """Users with too few interactions."""
    heldout_in_train: float
    """Users whose held-out item is among their training rows; of several, one of them."""
    heldout_unseen: float
    """Users whose held-out item no one trains on; of several, the fraction of such items."""
    tied_latest: float
    """Users with several interactions at their latest time."""
    warnings: list[str]


def audit(split: Split) -> Audit:
    """Look for what makes results on this split easy to misread."""
    data, held_out = split.interactions, split.held_out("test")
    tested = np.flatnonzero(held_out.sizes)
    repeated = np.bincount(held_out.owners, split.train.contains(held_out.owners, held_out.items), split.n_users)
    trained_by = np.bincount(split.train.items, minlength=split.n_items)
    tied_rows, tied_items = _tied_latest(split)
    found = Audit(
        split=split.settings.kind,
        tested_users=len(tested),
        tested_items=len(held_out.items),
        duplicate_pairs=int((split.observed.counts > 1).sum()),
        dropped_users=data.dropped_users,
        heldout_in_train=float((repeated[tested] > 0).mean()),
        heldout_unseen=float((trained_by[held_out.items] == 0).mean()),
        tied_latest=tied_rows,
        warnings=[],
    )
    return replace(found, warnings=_warnings(split, found, tied_items))


def _tied_latest(split: Split) -> tuple[float, float]:
    """Fractions of users with several rows, and with several distinct items, at their latest time."""
    data = split.interactions
    if data.times is None:
        return 0.0, 0.0
    latest = np.full(split.n_users, np.iinfo(np.int64).min)
    np.maximum.at(latest, data.users, data.times)
    rows = np.flatnonzero(data.times == latest[data.users])
    pairs = np.unique(data.users[rows].astype(np.int64) * split.n_items + data.items[rows])
    several = [np.bincount(of) > 1 for of in (data.users[rows], pairs // split.n_items)]
    return float(several[0].mean()), float(several[1].mean())


def _warnings(split: Split, found: Audit, tied_items: float) -> list[str]:
    data = split.interactions
    counts = split.observed.counts
    popular = np.sort(np.bincount(data.items, minlength=split.n_items))[::-1]
    head = float(popular[: max(1, split.n_items // 100)].sum() / len(data))
    dropped = found.dropped_users / (found.dropped_users + split.n_users)
    by_time = split.settings.kind in ("leave-one-out", "last-n")
    unseen = (
        f"For {found.heldout_unseen:.0%} of users no one trains on the held-out item: no method can learn to rank it"
    )
    if split.several:
        unseen = f"No one trains on {found.heldout_unseen:.0%} of the held-out items: no method can learn to rank them"
    cleaned = "lastfm-2k-distinct" if data.name == "lastfm-2k" else "the same data with data.distinct=true"
    held_out = {"random": "a random row", "file-order": "the last row"}[split.settings.untimed]
    n_candidates = split.candidates.shape[1]
    checks = [
        (
            found.heldout_in_train > REPEATED,
            f"For {found.heldout_in_train:.0%} of users the held-out item is also among their training rows: "
            f"a ranker that puts own training items first looks good here. Compare with {cleaned}.",
        ),
        (
            found.duplicate_pairs > 0,
            f"{found.duplicate_pairs:,} user-item pairs occur more than once "
            f"({int((counts - 1).sum()):,} of {len(data):,} rows are repeats).",
        ),
        (
            data.times is None and by_time,
            f"There are no timestamps, so {held_out} of each user is held out: "
            f"results say nothing about predicting what comes next.",
        ),
        (
            tied_items > TIED and by_time,
            f"{tied_items:.0%} of users have several items at their latest time, so the tie rule "
            f"({split.tie_rule}) decides what is tested. Compare only results with the same rule.",
        ),
        (
            found.heldout_unseen > UNSEEN,
            f"{unseen}, which bounds every result.",
        ),
        (
            found.tested_users < split.n_users,
            f"{split.n_users - found.tested_users:,} of {split.n_users:,} users have nothing held out: they train, and "
            f"results do not speak of them.",
        ),
        (
            dropped > DROPPED,
            f"{found.dropped_users:,} users ({dropped:.0%}) have fewer than {data.min_interactions} interactions "
            f"and were dropped: results hold for active users only.",
        ),
        (
            split.n_items < SMALL_CATALOGUE * n_candidates,
            f"The catalogue has only {split.n_items:,} items, so {n_candidates} candidates are much of it: "
            f"sampled metrics are close to the full ranking and not comparable with larger catalogues.",
        ),
        (
            head > HEAD,
            f"The most popular 1% of items hold {head:.0%} of interactions: popularity alone is hard to beat here. "
            f"Read every result beside its popularity row.",
        ),
    ]
    return [*split.notes, *(sentence for applies, sentence in checks if applies)]
