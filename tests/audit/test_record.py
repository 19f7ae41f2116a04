"""Audits are kept whole beside a run, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrecgel.audit.guesses import Finding
from fedrecgel.audit.promotion import Promotion
from fedrecgel.audit.record import AUDIT, read_audit, record_of, write_audit
from fedrecgel.audit.verdict import Audit
from fedrecgel.errors import StorageError

SMALL, LARGE = Finding(0.31, 0.3, -0.01, 0.03, 100), Finding(0.6, 0.3, 0.2, 0.4, 100)
FOUND = Audit(
    "secagg", 100, {"cohort_sum": SMALL}, {2: LARGE, 100: SMALL}, 1.5, 0.4, {"5% limited": Promotion(0.05, 0.1, 0.4)}
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_audit(tmp_path) is None
    written = record_of(FOUND, 2.0)
    write_audit(tmp_path, written)
    assert read_audit(tmp_path) == written
    assert (written.sentence, written.smallest_cohort) == (FOUND.sentence, 100)
    assert written.sums == {"2": LARGE, "100": SMALL}


@pytest.mark.parametrize("text", ["", "[]", '{"channel": "plain"}', '{"channel": 3}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / AUDIT).write_text(text)
    with pytest.raises(StorageError, match=AUDIT):
        read_audit(tmp_path)
