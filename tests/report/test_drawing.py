"""Figures for papers: what tells lines apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrecgel.display.chart import Chart, StepLine, Steps

pytest.importorskip("matplotlib")

from fedrecgel.report.drawing import draw_all

NAMES = ("first", "second", "third")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_lines_on_one_axis_are_named_and_so_are_steps(tmp_path: Path, n: int) -> None:
    lines = [StepLine(name, [1.0, 2.0], number, [0.5, 1.5], [1.5, 2.5]) for number, name in enumerate(NAMES[:n])]
    steps = Steps("label", "ε", ["∞", 8.0], "HR@10, %", lines)
    assert draw_all([Chart("one", "title", steps, "command")], tmp_path) == 1
    drawn = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert all(f">{text}<" in drawn for text in (*NAMES[:n], "∞", "8"))
