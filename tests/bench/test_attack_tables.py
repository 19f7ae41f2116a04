"""The tables of docs/privacy.md stand on complete audits, and name those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from runpy import run_path

from fedrecgel.audit.promotion import Promotion
from fedrecgel.audit.record import record_of, write_audit
from fedrecgel.audit.verdict import SHARES, Audit

SCRIPT = run_path(str(Path(__file__).parents[2] / "benchmarks" / "attacks.py"))  # other packages have that name, too
HONEST, LIMITS, MALICIOUS, promotions = (SCRIPT[name] for name in ("HONEST", "LIMITS", "MALICIOUS", "promotions"))
CASES = [share + key for key in LIMITS for share in (HONEST, *MALICIOUS)]


def written(root: Path, name: str, cases: Sequence[str], er: float) -> None:
    found = {case: Promotion(float(case[0]) / 100, er, 0.5) for case in cases}
    folder = root / "promotion" / name
    folder.mkdir(parents=True)
    write_audit(folder, record_of(Audit("plain", 10, {}, promotion=found), None))


def test_shares_are_those_of_audits() -> None:
    assert tuple(f"{share:.0%}" for share in SHARES) == MALICIOUS


def test_audits_that_are_incomplete_are_left_out_and_named(tmp_path: Path) -> None:
    written(tmp_path, "demo-fedmf-s0", CASES, 0.1)
    written(tmp_path, "demo-fedmf-s1", CASES[:4], 0.9)
    written(tmp_path, "demo-fedrecgel-s0", [], 0.9)
    header, rule, *rows = promotions(tmp_path, ["demo"], 3)
    assert header == (
        "| data, method | limits | HR@10, nobody malicious | ER@10 at 1% | ER@10 at 5% | HR@10 at 1% | HR@10 at 5% |"
    )
    assert rule == "|---|---|---:|---:|---:|---:|---:|"
    numbers = "50.0 | 10.0 (10 to 10) | 10.0 (10 to 10) | 50.0 | 50.0 |"
    assert rows[:3] == [
        f"| demo, `fedmf` | none | {numbers}",
        f"|  | fixed | {numbers}",
        f"|  | by round | {numbers}",
    ]
    assert rows[3:] == ["\nLeft out, as their audits do not have every case: demo-fedmf-s1, demo-fedrecgel-s0."]


def test_complete_audits_leave_nothing_out(tmp_path: Path) -> None:
    written(tmp_path, "demo-fedmf-s0", CASES, 0.1)
    assert len(list(promotions(tmp_path, ["demo"], 1))) == 2 + len(LIMITS)
