"""The full method against its variants, on ranks made by hand."""

from __future__ import annotations

from pathlib import Path

from tests.ranks import N_USERS, lay_out

from fedrecgel.studies.ablation import CHANGES, FULL, AblationExperiment
from fedrecgel.studies.experiment import Scope
from fedrecgel.studies.presets import Presets


def test_the_full_method_above_its_variants(tmp_path: Path) -> None:
    """Each variant is compared once, with a corrected p-value and an interval around the difference."""
    chosen = AblationExperiment(Scope(Presets(Path("none")), ("demo",), 5, ("published",)))
    ((_, group),) = chosen.plans.items()
    hits = dict.fromkeys(CHANGES, 0.5) | {FULL: 0.8}
    table = chosen.reduce(tmp_path, lay_out(tmp_path, group, hits), "command")
    rows = {row.row.label: row for row in table.rows}
    assert set(rows) == set(CHANGES)
    assert not rows[FULL].above
    for label in set(CHANGES) - {FULL}:
        found = rows[label].above["candidates"]["HR@10"]
        means = [rows[name].row.cells["candidates"]["HR@10"].mean for name in (FULL, label)]
        assert abs(found.difference - (means[0] - means[1])) < 1e-12
        assert found.low < found.difference < found.high
        assert found.p_adjusted is not None
        assert found.p <= found.p_adjusted < 0.05
        assert (found.sign, found.seeds, found.users) == (1, 5, N_USERS)


def test_runs_without_a_popularity_row_have_a_table(tmp_path: Path) -> None:
    chosen = AblationExperiment(Scope(Presets(Path("none")), ("demo",), 1, ("published",)))
    ((_, group),) = chosen.plans.items()
    records = lay_out(tmp_path, group, dict.fromkeys(CHANGES, 0.5), reference=False)
    (table,) = chosen.reduce(tmp_path, records, "command").tables()
    assert {entry.text for entry in table.rows[-1]} == {"popularity", "–", "1"}
