"""What lists show, as far as runs know it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedrecgel.report.collect import collect
from fedrecgel.report.lists import list_tables


def test_clicks_are_those_of_the_first_runs_that_know_them(results: Path) -> None:
    found = replace(collect(results), documents={})
    first, *others = found.groups
    unknown = [replace(record, summary={**record.run, "popular": None}) for record in first.records]
    found = replace(found, groups=[replace(first, records=unknown), *others])
    (table,) = list_tables(found)
    rows = {row[0].text: row for row in table.rows}
    assert rows[first.label][2].text == "–"
    assert rows["clicks"][2].value == pytest.approx(others[0].first["popular"]["clicks"])
