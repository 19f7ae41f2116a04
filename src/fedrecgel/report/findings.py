"""What the tests say, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from fedrecgel.report.collect import Collected
from fedrecgel.studies import EXPERIMENTS


@dataclass(frozen=True)
class Finding:
    """One data set in a few sentences."""

    dataset: str
    sentences: list[str]


def findings_of(found: Collected) -> list[Finding]:
    """For each data set the sentences of every experiment: who is above popularity, whether SAM helps, and so on."""
    names = sorted(found.documents, key=lambda name: EXPERIMENTS[name].findings_place)
    documents = [document for name in names for document in found.documents[name]]
    documents = documents if found.main is not None else [*found.plain_results(""), *documents]
    sentences: dict[str, list[str]] = {}
    for document in documents:
        for dataset, told in document.findings().items():
            sentences.setdefault(dataset, []).extend(told)
    return [Finding(dataset, told) for dataset, told in sentences.items()]
