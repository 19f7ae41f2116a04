from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedrecgel.cli.main import main
from fedrecgel.runs.health import health_of

METRIC = "HR@10"


def line(round: int, loss: float | None, value: float | None = None, validation: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"round": round, "loss": loss}
    if value is not None:
        found[METRIC] = value
    if validation is not None:
        found["validation"] = {METRIC: validation}
    return found


def test_an_exploding_loss_is_named_with_both_rounds() -> None:
    """The run of the issue: loss .2 at round 10, 2.5e10 at round 100."""
    (sentence,) = health_of([line(1, 0.7), line(10, 0.2), line(100, 2.5e10)], 100, 943, METRIC)
    assert "0.2 in round 10" in sentence
    assert "2.5e+10 in round 100" in sentence


@pytest.mark.parametrize(
    "losses",
    [[0.7, 0.2, 0.5], [0.5, 0.5, 0.5], [None, None, None], [0.7, -0.2, 3.0], [2.5e10, 0.7, 0.2]],
    ids=["noise", "flat", "none", "negative", "recovered"],
)
def test_other_losses_are_left_alone(losses: list[float | None]) -> None:
    assert health_of([line(n + 1, loss) for n, loss in enumerate(losses)], 3, 100, METRIC) == []


def test_rounds_after_the_reported_one_do_not_count() -> None:
    history = [line(1, 0.7, 0.5), line(2, 0.2, 0.6), line(3, 1e9, 0.1)]
    assert health_of(history, 2, 943, METRIC) == []
    assert len(health_of(history, 3, 943, METRIC)) == 2


def test_a_metric_far_below_its_best_is_named() -> None:
    """65 falling to 48, as in the issue."""
    (sentence,) = health_of([line(10, 0.2, 0.65), line(15, 0.2), line(20, 0.2, 0.48)], 20, 943, METRIC)
    assert "HR@10 was 65.00 in round 10 and is 48.00 in round 20" in sentence


@pytest.mark.parametrize(
    ("values", "users"), [((0.65, 0.60), 943), ((0.65, 0.48), 20), ((0.0, 0.0), 5), ((0.4, 0.6), 943)]
)
def test_a_small_fall_or_few_users_are_left_alone(values: tuple[float, float], users: int) -> None:
    history = [line(n + 1, 0.2, value) for n, value in enumerate(values)]
    assert health_of(history, 2, users, METRIC) == []


def test_validation_items_decide_where_there_are_any() -> None:
    history = [line(1, 0.2, 0.9, 0.5), line(2, 0.2, 0.4, 0.5)]
    assert health_of(history, 2, 943, METRIC) == []


def test_train_says_so_in_its_output_and_in_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FedMF at twenty times its published rate."""
    words = ["train", "--method", "fedmf", "--rounds", "4", "--out", str(tmp_path / "run"), "--set"]
    more = ["evaluation.full=false", "--set", "method.variant=released", "--set", "method.lr=1"]
    assert main([*words, *more]) == 0
    (sentence,) = (
        text for text in json.loads((tmp_path / "run/summary.json").read_text())["warnings"] if "loss" in text
    )
    assert sentence.startswith("Training diverged: the loss was 0.")
    assert sentence in capsys.readouterr().out
