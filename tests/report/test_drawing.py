"""Figures for papers: what tells lines apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrecgel.display.chart import BandLine, Chart, Curves, Difference, Differences, Panel, StepLine, Steps

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


def test_a_logarithmic_axis_has_numbers(tmp_path: Path) -> None:
    """Names with dollars stay names, so labels that are formulas would be shown as they are written."""
    line = BandLine("method", 0, [0.7, 30.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])
    curves = Curves("megabytes", {"HR@10": Panel("HR@10, %", [line])}, logarithmic=True)
    draw_all([Chart("one", "title", curves, "command")], tmp_path)
    drawn = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "mathdefault" not in drawn
    assert all(f">{text}<" in drawn for text in ("1", "2", "5", "10", "20"))


def test_a_long_name_leaves_room_for_its_interval(tmp_path: Path) -> None:
    """Matplotlib warns where axes collapse, and a warning is an error here."""
    name = "fedrecgel, rho_co 0.02 minus fedrecgel, rho_co 0.5 and much more"
    lines = {metric: [Difference(name, 1.0, -1.0, 3.0, 0, [])] for metric in ("HR@10", "NDCG@10")}
    draw_all([Chart("one", "title", Differences("", "", "", "", lines), "command")], tmp_path)
    assert f">{name}<" in (tmp_path / "one.svg").read_text(encoding="utf-8")
