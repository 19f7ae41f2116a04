"""How far results reach, in words, where held-out items stand in training rows and where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

RECORDED = "the held-out item is also among their training rows"
"""In the warnings of a run's summary where that holds for more than 1% of users (`runs/verdict.py`)."""


def recorded_leak(summaries: Iterable[Mapping[str, Any]]) -> bool:
    """Whether any of these runs says that its held-out items leaked."""
    return any(RECORDED in warning for summary in summaries for warning in summary.get("warnings", ()))


def level_sentences(popularity: str, among: str, reached: str, *, leak: bool, repeats: str = "") -> list[str]:
    """What popularity and others reach, for somebody who has never heard of HR@10; a leak is said second.

    Args:
        popularity: what it reaches, as 60%.
        among: of what the first 10 are counted.
        reached: what others reach, if there are any.
        leak: whether held-out items stand in training rows.
        repeats: what reaches how much by repeating the history, if that was measured.
    """
    saw = "should have seen" if leak else "saw"
    level = (
        f"Of the items that users chose and no method {saw}, popularity alone puts {popularity} among the first 10 "
        f"of {among}{f'; {reached}' if reached else ''}."
    )
    also = f", and {repeats}" if repeats else ""
    warning = f"Do not read that as learning: held-out items stand in their users' training rows, too{also}."
    return [level, warning] if leak else [level]
