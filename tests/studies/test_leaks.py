"""What runs recorded of held-out items among training rows is what sentences about them say."""

from __future__ import annotations

from pathlib import Path

from tests.builders import interactions_of

import fedrecgel
from fedrecgel.report.collect import collect
from fedrecgel.report.findings import findings_of
from fedrecgel.studies.leaks import recorded_leak

ROWS = [(user, item, item) for user in range(10) for item in (user, user + 1, user + 2, user + 3, user + 4)]
SAW = "Of the items that users chose and no method saw, popularity alone puts "
SHOULD = "Of the items that users chose and no method should have seen, popularity alone puts "


def test_a_comparison_and_a_report_tell_a_leak_that_runs_recorded(tmp_path: Path) -> None:
    for rows, start in ((ROWS, SAW), ([*ROWS, (0, 0, 9)], SHOULD)):
        split = interactions_of(rows, 130).split()
        runs = [fedrecgel.train(method, split) for method in ("ease", "popularity")]
        assert recorded_leak(run.summary for run in runs) == (start is SHOULD)
        folder = tmp_path / str(len(rows))
        for run in runs:
            run.save(folder / str(run.summary["method"]))
        (finding,) = findings_of(collect(folder))
        for told in (finding.sentences, fedrecgel.compare(*runs).findings()["tiny"]):
            assert told[0].startswith(start)
            assert told[1].startswith("Do not read that as learning") == (start is SHOULD)
