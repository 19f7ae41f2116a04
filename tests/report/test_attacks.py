"""The page shows what audits found out about runs, and has no such section without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.test_record import FOUND, LARGE

from fedrecgel.audit.record import record_of, write_audit
from fedrecgel.cli.main import main
from fedrecgel.report.attacks import attack_tables
from fedrecgel.report.collect import collect
from fedrecgel.report.html import render


@pytest.fixture
def run(tmp_path: Path) -> Path:
    small = ["data.users=20", "data.items=100", "data.interactions=200", "split.candidates=50"]
    words = [word for setting in small for word in ("--set", setting)]
    out = tmp_path / "run"
    assert (
        main(["train", "--method", "popularity", "--dataset", "synthetic", *words, "--out", str(out), "--quiet"]) == 0
    )
    return out


def test_a_run_without_an_audit_has_no_section(run: Path) -> None:
    found = collect(run)
    assert list(attack_tables(found)) == []
    assert '<section id="attacks">' not in render(found, "command")


def test_every_attack_is_a_line_and_the_outcome_a_sentence(run: Path) -> None:
    write_audit(run, record_of(FOUND, 2.0))
    found = collect(run)
    inference, promotion = attack_tables(found)
    lines = [[entry.text for entry in line] for line in inference.rows]
    assert [line[1:6] for line in lines] == [
        ["secagg", "cohort sum", "0.310", "0.300", "+0.010"],
        ["secagg", "sum of 2", "0.600", "0.300", "+0.300"],
        ["secagg", "sum of 100", "0.310", "0.300", "+0.010"],
    ]
    assert "None of these attacks" in inference.notes[0]
    assert "from 100 clients on" in inference.notes[0]
    assert "at least 1.50; claimed is 2.00" in inference.notes[0]
    assert [[entry.text for entry in line[1:]] for line in promotion.rows] == [
        ["5%", "row and client limits", "10.0", "40.00"]
    ]
    section = render(found, "command").partition('<section id="attacks">')[2].partition("</section>")[0]
    assert "What the server could find out" in section
    assert "How far an item can be pushed" in section


def test_a_promotion_that_is_incomplete_says_why(run: Path) -> None:
    write_audit(run, record_of(replace(FOUND, promotion_error="Uploads of round 2 should be finite."), None))
    inference, _ = attack_tables(collect(run))
    assert "Promotion is incomplete: a case cannot be trained. Uploads of round 2" in inference.notes[0]


def test_without_promotion_and_noise_neither_is_told(run: Path) -> None:
    plain = replace(FOUND, by_cohort={2: LARGE}, promotion={}, epsilon_lower_bound=None, noise_p=None)
    write_audit(run, record_of(plain, None))
    (inference,) = attack_tables(collect(run))
    assert "Canaries" not in inference.notes[0]
    assert "clients on" not in inference.notes[0]
