"""audit.json: what an audit found out, beside the run it is about, for the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from fedrecgel.audit.guesses import Finding
from fedrecgel.audit.promotion import Promotion
from fedrecgel.audit.verdict import Audit
from fedrecgel.storage import read_json, write_text

AUDIT = "audit.json"
"""In the run folder."""


@dataclass(frozen=True)
class AuditRecord:
    """An audit, and its outcome in a sentence."""

    channel: str
    cohort: int
    sentence: str
    attacks: dict[str, Finding]
    sums: dict[str, Finding]
    """The strongest attack on sums, by the number of clients in them."""
    smallest_cohort: int | None
    """From this size on sums give no more away than popularity does; None if none of those tried is large enough."""
    epsilon_lower_bound: float | None
    """Of a round, by canaries."""
    epsilon_claimed: float | None
    """Of a round, for a client that takes part for certain."""
    noise_p: float | None
    promotion: dict[str, Promotion]
    promotion_error: str | None = None
    """Why cases of it are missing, where one could not be trained."""


def record_of(found: Audit, claimed: float | None) -> AuditRecord:
    """What is kept of an audit."""
    return AuditRecord(
        found.channel,
        found.cohort,
        found.sentence,
        found.attacks,
        {str(n): one for n, one in found.by_cohort.items()},
        found.smallest_cohort,
        found.epsilon_lower_bound,
        claimed,
        found.noise_p,
        found.promotion,
        found.promotion_error,
    )


def write_audit(folder: Path, record: AuditRecord) -> Path:
    """Put it beside the run's other files."""
    path = folder / AUDIT
    write_text(path, msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n")
    return path


def read_audit(folder: Path) -> AuditRecord | None:
    """What stands beside a run; None where nobody audited it.

    Raises:
        StorageError: the file is no audit.
    """
    path = folder / AUDIT
    return read_json(path, AuditRecord) if path.exists() else None
