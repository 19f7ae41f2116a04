"""Sums under masks on nodes: those of plain, whoever is lost, and closed to a server that cheats."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.engine.flower.inprocess import InProcess, Tamper, config_of, same, served
from tests.engine.flower.masked import MASKED, SPLIT, masked_nodes

from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import IncompleteError

STEPS = ("prepare", "share", "train", "unmask")
ROUND = {"method": {"fraction": 1.0, "dim": 4}, "evaluation": {"full": False}}


def losing(step: str, nodes: set[int]) -> Tamper:
    """Nodes whose answers of one kind get lost."""

    def tamper(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        return [Lost("no answer within 5 s")] if kind == step and node in nodes else [answer]

    return tamper


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("n_lost", [0, 1, 3])
def test_a_run_is_that_of_plain_whoever_is_lost(n_lost: int, step: str, tmp_path: Path) -> None:
    """0, 10 and a third of ten nodes; under plain, the same nodes are lost, unless their sums had arrived."""
    lost = {100 + number for number in Random(n_lost).sample(range(10), n_lost)}
    masked = served(
        config_of("fedmf", **{**MASKED, **ROUND, "run": {"channel": "secagg", "rounds": 1}}),
        SPLIT,
        tmp_path / "masked",
        masked_nodes(tmp_path / "a", tamper=losing(step, lost)),
        simulated=False,
    )
    plain = served(
        config_of("fedmf", **{**ROUND, "run": {"rounds": 1}}, fixed_point={"fraction_bits": 40}),
        SPLIT,
        tmp_path / "plain",
        masked_nodes(
            tmp_path / "b",
            tamper=losing("train", lost if step != "unmask" else set()),
            rules=lambda number: {"min_users": 1},
        ),
        simulated=False,
    )
    assert masked.history[0]["clients"] == plain.history[0]["clients"] == 30 - 3 * n_lost * (step != "unmask")
    # Secrets of nodes differ from run to run, so only sizes can be compared here; simulated nodes have none.
    assert masked.history[0]["loss"] == pytest.approx(plain.history[0]["loss"], rel=0.05)
