"""What a reader should be told when a run is no good, or when its data make it look good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrecgel.data.audit import REPEATED, audit
from fedrecgel.evaluation.metrics import client_metrics

if TYPE_CHECKING:
    from fedrecgel.evaluation.ranking import Ranks
    from fedrecgel.runs.training import Training

NOTHING_MEASURED = (
    "Nothing was measured: the final model trained on all interactions. How good its settings are, a run without "
    "--final says."
)
WIDE = 1.96
"""Standard errors on either side of a mean in a 95% interval."""


def verdicts(training: Training, own: Ranks | None, popularity: Ranks | None) -> list[str]:
    """A sentence for each trap: no better than popularity, or tested on rows that were trained on."""
    found = []
    if own is not None and popularity is not None and training.method.kind != "reference":
        found += _beside_popularity(training, own, popularity)
    if len(training.split.train.items):  # in a deployment the rows are on the nodes
        share = audit(training.split).heldout_in_train
        if share > REPEATED:
            found.append(
                f"For {share:.0%} of users the held-out item is also among their training rows: putting own items "
                f"first looks good here. See `fedrecgel data audit {training.config.data.name}`."
            )
    return found


def _beside_popularity(training: Training, own: Ranks, popularity: Ranks) -> list[str]:
    """User by user, because both ranked the same items."""
    settings = training.config.evaluation
    name = f"NDCG@{max(settings.ks)}"
    mine, theirs = (client_metrics(ranks, settings.ks, settings.ties)[name] for ranks in (own, popularity))
    gain = 100 * (mine - theirs)
    mean, error = float(gain.mean()), float(gain.std()) / len(gain) ** 0.5 if len(gain) > 1 else 0.0
    low, high = mean - WIDE * error, mean + WIDE * error
    if low > 0:
        return []
    return [
        f"Not significantly above popularity on its {len(gain):,} users: {name} {mean:+.2f} points, 95% interval "
        f"{low:+.2f} to {high:+.2f}. Next: `fedrecgel tune`, another method (`fedrecgel methods`), or "
        f"`fedrecgel data audit {training.config.data.name}`."
    ]
