"""All interactions as training rows: nothing is held out, and nothing can be measured."""

from __future__ import annotations

import numpy as np

from fedrecgel.data.interactions import Interactions
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.data.split import NO_ITEM, Split, SplitSettings, latest_first


def hold_nothing_out(interactions: Interactions, settings: SplitSettings) -> Split:
    """For a final model: everybody trains on everything they have.

    Args:
        interactions: all of them.
        settings: how rows are ordered, where that matters to a method.
    """
    n_users, n_items = interactions.n_users, interactions.n_items
    latest = latest_first(interactions, settings)
    ordered = interactions.times is not None or settings.untimed == "file-order"
    merge = ItemSets.from_latest_first if ordered else ItemSets.from_pairs
    rows = merge(interactions.users[latest], interactions.items[latest], n_users, n_items)
    return Split(
        interactions,
        settings,
        train=rows,
        observed=rows,
        test=np.full(n_users, NO_ITEM, dtype=np.int64),
        candidates=np.zeros((n_users, settings.candidates), dtype=np.int32),
        validation=None,
        validation_candidates=None,
    )
