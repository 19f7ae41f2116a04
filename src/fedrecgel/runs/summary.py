"""summary.json: what a run was, what it reached, what it cost, where it came from."""

from __future__ import annotations

import platform
import subprocess
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedrecgel.channels.base import Plain, Preparation
from fedrecgel.channels.secagg import Secagg, SecaggSettings
from fedrecgel.data.split import Split
from fedrecgel.evaluation.metrics import is_metric
from fedrecgel.methods import method_label
from fedrecgel.runs.health import health_of
from fedrecgel.runs.reference import WITHHELD, has_reference, reference_sends

if TYPE_CHECKING:
    from fedrecgel.runs.training import Training

ALSO_LEAVES = {"local": frozenset[str](), "flower": frozenset({"clients", "loss", "rank", "refused", "since"})}
"""What no method declares: whom a node hosts and who took part, the sum of losses, ranks, what its gate left out,
since which round it takes part."""


def summarise(
    training: Training,
    reported: int,
    full: dict[str, float] | None,
    reference: dict[str, dict[str, float]],
    seconds_full: float,
) -> dict[str, Any]:
    """The summary of a finished run; fractions 0..1, seconds, bytes."""
    config, split, history, shown = training.config, training.split, training.history, training.measuring
    line = next(entry for entry in history if entry["round"] == reported)
    refused = sum((Counter(entry.get("refused", {})) for entry in history), Counter[str]())
    leaky = config.sampling.exclude_heldout_from_negatives
    tested = _held_out(split).get("tested_users", split.n_users)
    return {
        "run": training.fingerprint,
        "dataset": config.data.name,
        "method": method_label(config.method.name),
        "variant": config.method.variant,
        "seed": config.run.seed,
        "rounds": config.run.rounds,
        "data": {"users": split.n_users, "items": split.n_items, "interactions": len(split.interactions)},
        "protocol": {
            "split": "none: all interactions" if config.run.final else split.settings.kind,
            "ties": split.tie_rule,
            "candidates": split.settings.candidates,
            "equal_scores": config.evaluation.ties,
            "negatives": "leaky: held-out items are never drawn" if leaky else "outside the training items",
            "selection": config.evaluation.selection,
            "selected_round": reported,
            "fingerprint": split.fingerprint,
            **_held_out(split),
        },
        "metrics": {name: value for name, value in line.items() if is_metric(name)},
        "metrics_full": full,
        **({} if full is None or shown.sampled is None else {"metrics_full_users": len(shown.sampled)}),
        "reference": {"popularity": reference["candidates"]} if reference else {},
        "reference_full": {"popularity": reference.get("catalogue")} if reference else {},
        "coverage": shown.coverage,
        "reference_coverage": {"popularity": reference["coverage"]} if "coverage" in reference else {},
        "popular": shown.popular,
        "reference_popular": {"popularity": reference["popular"]} if "popular" in reference else {},
        "seconds": {
            "train": sum(entry["seconds_train"] for entry in history),
            "evaluate": sum(entry["seconds_evaluate"] for entry in history) + seconds_full,
            "total": training.seconds_total,
        },
        "bytes": {
            "up": sum(entry["bytes_up"] for entry in history),
            "down": sum(entry["bytes_down"] for entry in history),
        },
        "answers": {
            "taken": sum(entry["clients"] for entry in history),
            "missing": sum(entry.get("dropped", 0) for entry in history),
            "refused": dict(refused),
        },
        "privacy": {
            "channel": config.run.channel,
            "reveals": training.channel.reveals.name.lower(),
            "masks": masks_of(training),
            "simulated": config.run.engine == "local" or config.flower.superlink is None,
            "epsilon": None,
            "delta": None,
            "leaves_device": sorted(
                training.method.leaves_device() | ALSO_LEAVES[config.run.engine] | reference_sends(config)
            ),
            **training.channel.account(training.round),
        },
        **({"start": training.continued.facts} if training.continued else {}),
        "warnings": [
            *(training.continued.warnings if training.continued else []),
            *warnings_of(training),
            *health_of(history, reported, tested, f"HR@{max(config.evaluation.ks)}"),
            *split.notes,
        ],
        "versions": {
            "fedrecgel": version("fedrecgel"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "accelerated": training.accelerated,
        "commit": source_commit(),
    }


def masks_of(training: Training) -> str | None:
    """Whether masks ran, as they always do on nodes, or sums were taken without them, to the same bits; else None."""
    channel = training.channel
    if channel.prepares < Preparation.RECOVERY:
        return None
    sizes = [line["clients"] + line.get("dropped", 0) for line in training.history]
    return "run" if training.config.run.engine != "local" or all(map(channel.plays, sizes)) else "simulated"


BARE = (
    "Channel plain shows the server what every node sends: of a node with one user, which items that user touched. "
    "Leave --channel out to take sums under masks, where the method needs sums only."
)
UNJUDGED = (
    "Behind masks no answer of a node can be compared with others: gate.max_norm holds on the nodes themselves, and "
    "the server refuses sums beyond clients x fixed_point.largest only."
)


def _held_out(split: Split) -> dict[str, int]:
    """How many items of how many users are tested, where that is not one of each."""
    if not split.several:
        return {}
    held_out = split.held_out("test")
    return {"tested_users": int((held_out.sizes > 0).sum()), "tested_items": len(held_out.items)}


def warnings_of(training: Training) -> list[str]:
    """What a reader of the numbers should know, each in a sentence or two."""
    found = [] if has_reference(training.config) or training.config.run.final else [WITHHELD]
    if training.config.run.engine == "flower":
        found += [BARE] * (training.config.run.channel == Plain.name) + [UNJUDGED] * training.channel.hides
    found += _lowered(training)
    asked = training.config.run.rounds
    if training.last_round < asked:
        found.append(
            f"The run stopped after round {training.last_round} of {asked}: another round would exceed dp.epsilon."
        )
    return found + training.channel.warnings()


def _lowered(training: Training) -> list[str]:
    """That sums may cover fewer clients than hide each of them, where the settings allow it."""
    own = training.config.channels.get(Secagg.section)
    stated = training.method.smallest_sum
    if not isinstance(own, SecaggSettings) or own.min_clients is None or own.min_clients >= stated:
        return []
    return [
        f"secagg.min_clients = {own.min_clients} is below the {stated:,} clients from which on sums of "
        f"'{type(training.method).__name__}' hide each of them: smaller ones tell of single histories."
    ]


def source_commit() -> str | None:
    """Commit of the checkout this package runs from, with `-dirty` for uncommitted changes; None if installed."""
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here.parent), *arguments], capture_output=True, text=True, timeout=10, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    if git("ls-files", "--error-unmatch", here.name) is None:  # installed inside somebody else's repository
        return None
    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if commit and changed else commit
