"""What the tests say, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from fedrecgel.report.collect import Collected
from fedrecgel.report.tables import difference_text
from fedrecgel.studies.main_table import POPULARITY, MainTable, Pair
from fedrecgel.studies.statistics import Comparison


@dataclass(frozen=True)
class Finding:
    """One data set in a few sentences."""

    dataset: str
    sentences: list[str]


def findings_of(found: Collected) -> list[Finding]:
    """For each data set: who is above popularity, whether SAM helps, which radii matter, and what quirks are worth."""
    if found.main is None:
        return []
    datasets = dict.fromkeys(row.dataset for row in found.main.rows)
    return [
        Finding(name, [*_popularity(found.main, name), *_sam(found, name), *_radii(found, name), *_quirks(found, name)])
        for name in datasets
    ]


def _popularity(main: MainTable, dataset: str, metric: str = "HR@10") -> list[str]:
    pairs = [pair for pair in main.pairs if _is(pair, dataset, metric) and pair.second == POPULARITY]
    federated = {row.method for row in main.rows if row.kind == "federated"}
    pairs = [pair for pair in pairs if pair.first in federated]
    if not pairs:
        return []
    pairs.sort(key=lambda pair: -pair.comparison.difference)
    words = {
        1: "Above popularity",
        0: "Not significantly different from popularity, with 95% intervals",
        -1: "Below popularity",
    }
    sentences = []
    for sign, text in words.items():
        told = [pair for pair in pairs if pair.comparison.sign == sign]
        if told:
            names = (f"{pair.first} ({_points(pair.comparison, interval=sign == 0)})" for pair in told)
            sentences.append(f"{text} ({metric}, points): {', '.join(names)}.")
    if not any(pair.comparison.sign > 0 for pair in pairs):
        sentences.insert(0, "No federated method is significantly above popularity.")
    return sentences


def _points(found: Comparison, *, interval: bool = False) -> str:
    reach = f" [{100 * found.low:+.1f}, {100 * found.high:+.1f}]" if interval else ""
    return f"{100 * found.difference:+.1f}{reach}"


def _is(pair: Pair, dataset: str, metric: str) -> bool:
    return (pair.dataset, pair.against, pair.metric) == (dataset, "candidates", metric)


def _sam(found: Collected, dataset: str, metric: str = "NDCG@10") -> list[str]:
    """Full minus both radii off: the same code, settings, users and seeds."""
    if found.ablation is None:
        return []
    sentences = []
    for item in found.ablation.rows:
        comparison = item.above.get("candidates", {}).get(metric)
        if item.row.dataset != dataset or item.row.label != "both off" or comparison is None:
            continue
        verdict = {1: "helps", -1: "hurts", 0: "makes no significant difference"}[comparison.sign]
        sentences.append(f"SAM {verdict} at the {item.setting} settings ({metric} {difference_text(comparison)}).")
    return sentences


def _radii(found: Collected, dataset: str) -> list[str]:
    """Each radius against 0, the other as the data set's config has it, in points."""
    if found.sensitivity is None:
        return []
    groups: dict[tuple[str, str], list[str]] = {}
    for point in found.sensitivity.points:
        for metric, comparison in point.above_zero.items():
            if point.row.dataset == dataset:
                told = groups.setdefault((point.setting, metric), [])
                if comparison.sign:
                    told.append(f"{point.radius} = {point.value:g} {_points(comparison)}")
    return [
        f"Radii that change {metric} significantly against 0 at the {setting} settings, in points: "
        f"{'; '.join(told) or 'none'}."
        for (setting, metric), told in groups.items()
    ]


def _quirks(found: Collected, dataset: str, metric: str = "NDCG@10") -> list[str]:
    """Each quirk against the corrected method, in points."""
    if found.quirks is None:
        return []
    worth = [
        (item.row.method, item.row.label, comparison)
        for item in found.quirks.rows
        if item.row.dataset == dataset and (comparison := item.worth.get("candidates", {}).get(metric)) is not None
    ]
    groups = {
        f"Quirks that change {metric} significantly, in points": [item for item in worth if item[2].sign],
        "Quirks that do not": [item for item in worth if not item[2].sign and not item[2].one_seed],
        f"Quirks run with one seed, so not tested; {metric}, points": [item for item in worth if item[2].one_seed],
    }
    return [
        f"{text}: {'; '.join(f'{method}, {label} {_points(comparison)}' for method, label, comparison in told)}."
        for text, told in groups.items()
        if told
    ]
