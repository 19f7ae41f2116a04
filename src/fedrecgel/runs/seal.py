"""The seal of a finished run: checksums in summary.json, by which damage and mix-ups are noticed when it is read.

It protects from accidents. Who can write to the folder can write a new seal, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from fedrecgel.errors import RunFolderError
from fedrecgel.evaluation.metrics import is_metric

FORMAT = 2
"""What summary.json calls the arrangement of a run folder: 1 has no checksums, 2 did not always say so."""
SEAL = "seal"
"""Key of the seal in summary.json."""
Metrics = dict[str, float]


@dataclass(frozen=True)
class Seal:
    """What the files of a run should be."""

    files: dict[str, str]
    """Checksum by file name: of the text of metrics.jsonl, of the settings in config.toml, of a tensor file its own."""
    sha256: str
    """Of the rest of summary.json and of these."""


@dataclass(frozen=True)
class _Data:
    users: int
    items: int
    interactions: int


@dataclass(frozen=True)
class _Protocol:
    split: str
    ties: str
    candidates: int
    equal_scores: str
    negatives: str
    selection: str
    selected_round: int
    fingerprint: str


@dataclass(frozen=True)
class _Seconds:
    train: float
    evaluate: float
    total: float


@dataclass(frozen=True)
class _Bytes:
    up: float
    down: float


@dataclass(frozen=True)
class _Privacy:
    channel: str
    leaves_device: list[str]


@dataclass(frozen=True)
class Summary:
    """The keys of summary.json that somebody reads; there may be others."""

    dataset: str
    method: str
    variant: str | None
    seed: int
    rounds: int
    data: _Data
    protocol: _Protocol
    metrics: Metrics
    metrics_full: Metrics | None
    reference: dict[str, Metrics | None]
    reference_full: dict[str, Metrics | None]
    seconds: _Seconds
    bytes: _Bytes
    privacy: _Privacy
    versions: dict[str, str]
    commit: str | None
    accelerated: bool = False


@dataclass(frozen=True)
class HistoryLine:
    """The keys of a line of metrics.jsonl that somebody reads; there may be others, and there may be metrics."""

    round: int
    loss: float | None = None
    seconds_train: float = 0.0
    seconds_evaluate: float = 0.0
    clients: int = 0
    bytes_up: float = 0
    bytes_down: float = 0


def checksum(text: bytes) -> str:
    """SHA-256 of a text."""
    return sha256(text).hexdigest()


def history_text(history: Sequence[Mapping[str, Any]]) -> str:
    """The text of metrics.jsonl."""
    return "".join(json.dumps(line) + "\n" for line in history)


def read_line(line: bytes) -> dict[str, Any]:
    """A line of metrics.jsonl by its schema.

    Raises:
        ValueError: it is no JSON.
        msgspec.ValidationError: it is something else.
    """
    found: dict[str, Any] = msgspec.convert(json.loads(line), dict[str, Any])
    msgspec.convert(found, HistoryLine)
    msgspec.convert({name: value for name, value in found.items() if is_metric(name)}, Metrics)
    return found


def sealed(summary: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """The text of summary.json."""
    seal = {"files": dict(files), "sha256": _checksum(summary, files)}
    return json.dumps({**summary, SEAL: seal}, indent=1) + "\n"


def unseal(text: bytes) -> tuple[dict[str, Any], Mapping[str, str] | None]:
    """The summary and the checksums of the files beside it; None for a summary of an earlier version.

    Raises:
        ValueError: it is no JSON, or its own checksum is another.
        msgspec.ValidationError: it is something else.
        RunFolderError: it is of a later version.
    """
    summary: dict[str, Any] = msgspec.convert(json.loads(text), dict[str, Any])
    if (found := msgspec.convert(summary.get("format", FORMAT), int)) > FORMAT:
        raise RunFolderError(
            f"This run folder has format {found}, of a later version of fedrecgel; this one reads up to {FORMAT}. "
            f"Update fedrecgel."
        )
    files = None
    if SEAL in summary or "run" in summary:  # a run has had its name as long as there have been seals
        seal = msgspec.convert(summary.pop(SEAL, None), Seal)
        if _checksum(summary, seal.files) != seal.sha256:
            raise ValueError("its checksum is another, so it was changed after the run")
        files = seal.files
    summary.pop("format", None)  # of the file, not of the run
    msgspec.convert(summary, Summary)
    return summary, files


def _checksum(summary: Mapping[str, Any], files: Mapping[str, str]) -> str:
    return checksum(json.dumps([summary, files], sort_keys=True).encode())
