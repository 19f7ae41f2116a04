from __future__ import annotations

from pathlib import Path

from fedrecgel.studies.records import Record, ResultsLog


def record(fingerprint: str, error: str = "diverged") -> Record:
    return Record("failed", fingerprint, f"runs/{fingerprint}", {"run": {"seed": 0}}, None, error=error)


def test_lines_are_only_added_and_the_last_counts(tmp_path: Path) -> None:
    log = ResultsLog(tmp_path / "new")
    assert log.read() == {}
    for item in (record("a"), record("b"), record("a", "out of memory")):
        log.append(item)
    assert len(log.path.read_text().splitlines()) == 3
    assert log.read() == {"a": record("a", "out of memory"), "b": record("b")}


def test_a_line_cut_off_by_a_crash_is_skipped_and_swallows_nothing(tmp_path: Path) -> None:
    log = ResultsLog(tmp_path)
    log.append(record("a"))
    with log.path.open("a") as file:
        file.write('{"status": "fini')
    assert set(log.read()) == {"a"}
    log.append(record("b"))
    assert set(log.read()) == {"a", "b"}
