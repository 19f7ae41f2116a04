"""Which values of a radius differ from none, on ranks made by hand."""

from __future__ import annotations

from pathlib import Path

from tests.ranks import lay_out

from fedrecgel.studies.experiment import Scope
from fedrecgel.studies.presets import Presets
from fedrecgel.studies.records import Record
from fedrecgel.studies.sensitivity import SensitivityExperiment

GRID = (0.0, 0.1, 1.0)


def experiment(grid: tuple[float, ...] = GRID, seeds: int = 5) -> SensitivityExperiment:
    options = {"grid": ",".join(map(str, grid))}
    return SensitivityExperiment(Scope(Presets(Path("none")), ("demo",), seeds, ("published",), options=options))


def signs(root: Path, chosen: SensitivityExperiment, hits: dict[float, float]) -> dict[tuple[str, float], int | None]:
    """Of HR@10 against radius 0; users are hit with these probabilities at each value of rho_co."""
    records: dict[str, Record] = {}
    for plan in chosen.plans:
        chances = {row.label: hits[value if plan.radius == "rho_co" else 0.0] for value, row in plan.rows.items()}
        records |= lay_out(root, plan.rows.values(), chances)
    points = chosen.reduce(root, records, "command").points
    return {
        (point.radius, point.value): point.above_zero["HR@10"].sign if "HR@10" in point.above_zero else None
        for point in points
    }


def test_a_value_that_hurts_and_one_that_does_nothing(tmp_path: Path) -> None:
    assert signs(tmp_path, experiment(), {0.0: 0.8, 0.1: 0.8, 1.0: 0.4}) == {
        ("rho_ur", 0.0): None,
        ("rho_ur", 0.1): 0,
        ("rho_ur", 1.0): 0,
        ("rho_co", 0.0): None,
        ("rho_co", 0.1): 0,
        ("rho_co", 1.0): -1,
    }


def test_without_radius_zero_nothing_is_compared(tmp_path: Path) -> None:
    found = signs(tmp_path, experiment((0.1, 1.0)), {0.0: 0.8, 0.1: 0.8, 1.0: 0.4})
    assert set(found.values()) == {None}


def test_the_other_radius_stays_where_it_is() -> None:
    for plan in experiment().plans:
        other = "rho_co" if plan.radius == "rho_ur" else "rho_ur"
        for value, row in plan.rows.items():
            method = row.origins[0].config.to_dict()["method"]
            assert (method[plan.radius], method[other]) == (value, plan.fixed)


def test_runs_without_a_popularity_row_have_tables_and_charts(tmp_path: Path) -> None:
    chosen, records = experiment((0.0, 1.0)), dict[str, Record]()
    for plan in chosen.plans:
        chances = {row.label: 0.5 for row in plan.rows.values()}
        records |= lay_out(tmp_path, plan.rows.values(), chances, reference=False)
    found = chosen.reduce(tmp_path, records, "command")
    assert all({"popularity", "–"} <= {entry.text for entry in table.rows[-1]} for table in found.tables())
    lines = [line for chart in found.charts(list(records.values())) for line in chart.content.lines]  # type: ignore[union-attr]
    assert {line.popularity for line in lines} == {None}


def test_bands_and_tests_are_shown_only_of_what_was_tested(tmp_path: Path) -> None:
    for seeds, tested in ((5, True), (3, False)):
        chosen, records = experiment(seeds=seeds), dict[str, Record]()
        for plan in chosen.plans:
            root = tmp_path / str(seeds)
            records |= lay_out(root, plan.rows.values(), {row.label: 0.5 for row in plan.rows.values()})
        found = chosen.reduce(root, records, "command")
        lines = [line for chart in found.charts([]) for line in chart.content.lines]  # type: ignore[union-attr]
        assert [line.low != line.high for line in lines] == [tested] * 4
        assert {"Test: " in table.notes[0] for table in found.tables()} == {tested}
    assert "With five seeds or more bands are 95% intervals" in SensitivityExperiment.about
